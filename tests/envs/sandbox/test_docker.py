"""The Docker backend against a real engine: right answers, nothing lost, nothing left behind."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.sandbox.base import Job, Limits, Outcome
from envs.sandbox.docker import (
    LABEL,
    OWNER,
    DockerSandbox,
    Launcher,
    image_tag,
    orphaned,
    owner,
    reap_orphans,
    worker_options,
)
from envs.sandbox.python_runtime import base_python
from tests.envs.sandbox.host import eventually

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
    return [
        container["Id"] for container in client.api.containers(all=True, filters={"label": label})
    ]


def at_work(sandbox: DockerSandbox) -> list[str]:
    """The ids of the containers that jobs run in now; one more waits in store."""
    return [worker.handle.container for worker in sandbox._connections if worker.ready]


def free_mb() -> int:
    match = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(match[1]) // 1024


def test_owner_is_known_dead_only_by_its_own_kernel():
    boot, namespace, pid, started = owner().split(" ")
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not orphaned(owner())
    assert orphaned(f"{boot} {namespace} {gone.pid} {started}")
    assert orphaned(f"{boot} {namespace} {pid} 1"), "the pid was given to another process"
    assert not orphaned(f"elsewhere {namespace} {gone.pid} {started}")


def test_a_container_that_was_never_started_is_reaped_whoever_made_it(monkeypatch):
    elsewhere = {OWNER: "another-boot pid:[1] 7 100"}
    now = time.time()
    listed = [
        {"Id": "left", "Labels": elsewhere, "State": "created", "Created": now - 3600},
        {"Id": "about to start", "Labels": elsewhere, "State": "created", "Created": now - 1},
        {"Id": "at work", "Labels": elsewhere, "State": "running", "Created": now - 3600},
    ]
    removed = []
    client = SimpleNamespace(api=SimpleNamespace(containers=lambda **_: listed))
    monkeypatch.setattr(
        "envs.sandbox.docker.remove", lambda _, container: removed.append(container) or True
    )
    assert reap_orphans(client) == 1
    assert removed == ["left"]


@pytest.fixture(scope="module")
def sandbox(engine):
    with DockerSandbox(2) as opened:
        yield opened


@pytest.mark.docker
def test_killed_containers_lose_nothing(sandbox, engine):
    jobs, done, killed = doubling_jobs(30, 4, seconds=0.02), {}, []
    for index, runs in sandbox.run(jobs, go_on):
        done[index] = runs
        if len(done) in (5, 15):
            for victim in at_work(sandbox):
                engine.api.kill(victim)
                killed.append(victim)
    assert len(killed) in (3, 4)  # on a busy machine one of the second two is still starting
    check_doubled(jobs, done)


@pytest.mark.docker
def test_one_slow_start_holds_up_no_other_worker(engine, monkeypatch):
    slow, launches = threading.Event(), []
    launch = Launcher._launch

    def second_waits(self):
        launches.append(self)
        if len(launches) == 2:
            slow.wait(60)
        return launch(self)

    monkeypatch.setattr(Launcher, "_launch", second_waits)
    jobs = doubling_jobs(8, 2)
    try:
        with DockerSandbox(2) as opened:
            results = opened.run(jobs, go_on)
            first = next(results)
            assert not slow.is_set()
            slow.set()
            check_doubled(jobs, dict([first, *results]))
    finally:
        slow.set()


@pytest.mark.docker
@pytest.mark.parametrize(
    ("limit_mb", "taken_mb"),
    # above 2 GiB slow: writing so many pages takes seconds
    [(1200, 1000), pytest.param(3000, 2500, marks=pytest.mark.slow)],
)
def test_a_container_is_as_large_as_its_tests_may_become(engine, limit_mb, taken_mb):
    if free_mb() < limit_mb:
        pytest.skip(f"this machine has no {limit_mb} MB free")
    program = f"pages = [bytes(1 << 20) + b'x' for _ in range({taken_mb})]\nprint(len(pages))"
    with DockerSandbox(1, memory_mb=128) as opened:
        small = doubling_jobs(2, 1)
        check_doubled(small, dict(opened.run(small, go_on)))
        job = Job(program, ("",), Limits(memory_mb=limit_mb, cpu_s=20, wall_s=60))
        [(_, [run])] = opened.run([job], go_on)
        assert (run.outcome, run.stdout) == (Outcome.FINISHED, b"%d\n" % taken_mb)
        assert opened.replaced == 0


@pytest.mark.docker
def test_container_whose_memory_limit_was_hit_is_replaced(engine, monkeypatch):
    # The test's own limit is above the container's, so that the kernel has to step in.
    monkeypatch.setattr(DockerSandbox, "prepare_for", lambda self, jobs: None)
    hog = Job("pages = [bytearray(1 << 20) for _ in range(1000)]", ("",), Limits(memory_mb=2000))
    jobs = doubling_jobs(3, 2)
    with DockerSandbox(1, memory_mb=256) as opened:
        list(opened.run(jobs, go_on))
        before = at_work(opened)
        [(_, [run])] = opened.run([hog], go_on)
        assert (run.outcome, run.exit_code) == (Outcome.MEMORY_LIMIT, -signal.SIGKILL)
        check_doubled(jobs, dict(opened.run(jobs, go_on)))
        assert not set(before) & set(at_work(opened))
        assert opened.replaced == 0, "PID 1 must survive: the kernel kills the test"


@pytest.mark.docker
def test_close_leaves_nothing(engine):
    with DockerSandbox(2) as opened:
        run = opened.run_id
        list(opened.run(doubling_jobs(3, 2), go_on))
        assert len(containers(engine, f"{LABEL}={run}")) >= 2
    assert containers(engine, f"{LABEL}={run}") == []
    assert not [thread for thread in threading.enumerate() if run in thread.name]
    opened.close()


OPENINGS = """
import gc, os
from envs.sandbox.base import Job
from envs.sandbox.docker import DockerSandbox
gc.disable()
counts = []
for _ in range(3):
    with DockerSandbox(1) as sandbox:
        list(sandbox.run([Job("pass", ("", ""))] * 3, lambda *_: True))
    counts.append(len(os.listdir("/proc/self/fd")))
print(counts[-1] - counts[0])
"""


@pytest.mark.docker
def test_sandboxes_opened_and_closed_use_up_no_descriptors(engine):
    command = [sys.executable, "-c", OPENINGS]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout == "0\n"


WORKING = """
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
    working = subprocess.Popen(
        [sys.executable, "-c", WORKING], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    run = working.stdout.readline().strip()
    running = {"label": f"{LABEL}={run}", "status": "running"}
    assert eventually(lambda: len(engine.api.containers(filters=running)) == 2)
    time.sleep(0.5)  # into the middle of a test
    working.send_signal(signal.SIGKILL)
    working.wait()
    working.stdout.close()
    assert eventually(lambda: not containers(engine, f"{LABEL}={run}"))


@pytest.mark.docker
def test_leftovers_of_dead_owners_are_reaped_at_start(engine):
    sleeper = subprocess.Popen(["sleep", "100"])
    options = worker_options(memory_mb=64, pids=8)
    labels = {OWNER: owner(sleeper.pid)}
    command = [base_python(), "-c", "import signal; signal.pause()"]
    left = engine.containers.run(image_tag(), command, detach=True, labels=labels, **options)
    try:
        DockerSandbox(1).close()
        assert left.id in containers(engine, OWNER), "its owner is alive"
        sleeper.kill()
        sleeper.wait()
        DockerSandbox(1).close()
        assert left.id not in containers(engine, OWNER)
    finally:
        sleeper.kill()
        if left.id in containers(engine, OWNER):
            left.remove(force=True)
