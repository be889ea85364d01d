"""The Docker backend against a real engine: right answers, nothing lost, nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envs.sandbox.base import Job, Limits, Outcome, SandboxError
from envs.sandbox.docker import Demultiplexer, DockerSandbox
from envs.sandbox.engine import LABEL, orphaned, owner_labels, start_time, worker_options
from envs.sandbox.image import image_tag

ROOT = Path(__file__).parents[3]
DOUBLE = "print(2 * int(input()))"


def go_on(job: int, test: int, execution: object) -> bool:
    return True


def doubling_jobs(jobs: int, tests: int, seconds: float = 0.0) -> list[Job]:
    program = f"import time; time.sleep({seconds}); {DOUBLE}"
    return [Job(program, tuple(str(1000 * i + k) for k in range(tests))) for i in range(jobs)]


def check_doubled(jobs: list[Job], results: dict) -> None:
    assert sorted(results) == list(range(len(jobs)))
    for index, job in enumerate(jobs):
        assert [run.outcome for run in results[index]] == [Outcome.FINISHED] * len(job.inputs)
        expected = [b"%d\n" % (2 * int(text)) for text in job.inputs]
        assert [run.stdout for run in results[index]] == expected


def containers(client, label: str = LABEL) -> list[str]:
    """The ids of the containers that carry a label, given as `name` or `name=value`."""
    return [found["Id"] for found in client.api.containers(all=True, filters={"label": label})]


def eventually(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds


def stream(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 1000])
def test_demultiplexer_takes_streams_apart_wherever_they_are_cut(size):
    whole = stream(1, b"out") + stream(2, b"err") + stream(1, b"") + stream(1, b"put\x01\0\0")
    streams = Demultiplexer()
    pieces = [streams.feed(whole[i : i + size]) for i in range(0, len(whole), size)]
    assert b"".join(pieces) == b"output\x01\0\0"
    assert streams.stderr == b"err"


def test_owner_is_known_dead_only_by_its_own_kernel():
    labels = owner_labels("run")
    assert not orphaned(labels)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert orphaned(labels | {f"{LABEL}.pid": str(gone.pid)})
    assert orphaned(labels | {f"{LABEL}.started": "1"}), "the pid was given to another process"
    assert not orphaned(labels | {f"{LABEL}.pid": str(gone.pid), f"{LABEL}.scope": "elsewhere"})


def test_no_engine_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    start = time.monotonic()
    with pytest.raises(SandboxError, match=r"none\.sock.*sandbox=embedded"):
        DockerSandbox(1)
    assert time.monotonic() - start < 5


@pytest.fixture(scope="module")
def sandbox(engine):
    with DockerSandbox(2) as opened:
        yield opened


@pytest.mark.docker
def test_runs_programs_on_inputs(sandbox):
    jobs = doubling_jobs(20, 5)
    check_doubled(jobs, dict(sandbox.run(jobs, go_on)))


@pytest.mark.docker
def test_large_input_and_output(sandbox):
    text = "7" * 10_000_000
    job = Job("print(input())", (text,), Limits(cpu_s=10, wall_s=60, output_mb=16))
    [(_, [run])] = sandbox.run([job], go_on)
    assert run.stdout.decode() == text + "\n"


@pytest.mark.docker
def test_program_is_nobody_and_can_write_nowhere(sandbox):
    program = (
        "import os\n"
        "for path in '/tmp/x', '/dev/shm/x', '/dev/mqueue/x', '/x', '/proc/1/oom_score_adj':\n"
        "    try: open(path, 'w'); print('wrote', path)\n"
        "    except OSError: pass\n"
        "print(os.getuid() > 1 << 19, os.getgroups())\n"
    )
    [(_, [run])] = sandbox.run([Job(program, ("",))], go_on)
    assert run.stdout == b"True []\n"


@pytest.mark.docker
def test_killed_containers_lose_nothing(sandbox, engine):
    jobs, done, killed = doubling_jobs(30, 4, seconds=0.02), {}, []
    for index, runs in sandbox.run(jobs, go_on):
        done[index] = runs
        if len(done) in (5, 15):
            # Newest first: the last two work, and the one before them waits in store.
            for victim in containers(engine, f"{LABEL}={sandbox.run_id}")[-2:]:
                engine.api.kill(victim)
                killed.append(victim)
    assert len(killed) == 4
    check_doubled(jobs, done)


@pytest.mark.docker
def test_two_sandboxes_do_not_disturb_each_other(sandbox):
    jobs = doubling_jobs(4, 2)
    with DockerSandbox(1) as other:
        check_doubled(jobs, dict(other.run(jobs, go_on)))
    check_doubled(jobs, dict(sandbox.run(jobs, go_on)))


@pytest.mark.docker
def test_worn_out_worker_is_replaced(engine):
    jobs = doubling_jobs(7, 1)
    with DockerSandbox(1, max_jobs=2) as opened:
        before = set(containers(engine, f"{LABEL}={opened.run_id}"))
        check_doubled(jobs, dict(opened.run(jobs, go_on)))
        assert not before & set(containers(engine, f"{LABEL}={opened.run_id}"))


@pytest.mark.docker
def test_close_leaves_nothing(engine):
    descriptors = set(os.listdir("/proc/self/fd"))
    with DockerSandbox(2) as opened:
        run = opened.run_id
        list(opened.run(doubling_jobs(3, 2), go_on))
        assert len(containers(engine, f"{LABEL}={run}")) >= 2
    assert containers(engine, f"{LABEL}={run}") == []
    assert not [thread for thread in threading.enumerate() if run in thread.name]
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    opened.close()


OWNER = """
import sys
from envs.sandbox.base import Job
from envs.sandbox.docker import DockerSandbox
sandbox = DockerSandbox(2)
job = Job("while True: pass", ("",) * 8)
print(sandbox.run_id, flush=True)
list(sandbox.run([job, job], lambda *_: True))
"""


@pytest.mark.docker
def test_containers_die_with_their_owner(engine):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    run = owner.stdout.readline().strip()
    assert eventually(lambda: len(containers(engine, f"{LABEL}={run}")) >= 2)
    time.sleep(0.5)  # into the middle of a test
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert eventually(lambda: not containers(engine, f"{LABEL}={run}"), 20.0)


@pytest.mark.docker
def test_leftovers_of_dead_owners_are_reaped_at_start(engine):
    owner = subprocess.Popen(["sleep", "100"])
    options = worker_options(memory_mb=64, pids=8)
    labels = owner_labels("leftover") | {f"{LABEL}.pid": str(owner.pid)}
    labels[f"{LABEL}.started"] = start_time(owner.pid)
    command = ["python3.11", "-c", "import signal; signal.pause()"]
    left = engine.containers.run(image_tag(), command, detach=True, labels=labels, **options)
    try:
        DockerSandbox(1).close()
        assert left.id in containers(engine), "its owner is alive"
        owner.kill()
        owner.wait()
        DockerSandbox(1).close()
        assert left.id not in containers(engine)
    finally:
        owner.kill()
        if left.id in containers(engine):
            left.remove(force=True)
