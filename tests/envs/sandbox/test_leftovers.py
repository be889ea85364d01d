"""Leftovers: none of a worker that is killed, and none of a test to later tests."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envs.sandbox.base import Job, Limits, Outcome
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
from envs.sandbox.pool import Task
from tests.envs.programs import ATTACKS, HONEST, tool
from tests.envs.sandbox.host import descendants, eventually, is_running
from tests.envs.sandboxes import open_one

# Each level doubles what the compiler writes.
SLEEPS_ONCE_COMPILED = "f = abs\n" + "".join(
    f"{' ' * n}try: f(1)\n{' ' * n}finally:\n" for n in range(17)
)
SLEEPS_ONCE_COMPILED += f"{' ' * 17}x = 1\nimport time\ntime.sleep(1000)"


@pytest.mark.parametrize("form", ["namespaces", "landlock"])
def test_a_program_being_compiled_ends_with_its_worker(form):
    if reason := form_unavailable(form):
        pytest.skip(f"this machine has no {form}: {reason}")
    limits = Limits(cpu_s=20, wall_s=600, memory_mb=2000)
    with EmbeddedSandbox(workers=1, form=form) as sandbox:
        assert list(sandbox.run([Job("pass", ("",))], lambda *_: True))
        before = set(descendants())
        [worker] = sandbox._connections
        worker.begin(Task(0, Job(SLEEPS_ONCE_COMPILED, ("",), limits)))
        worker.flush()
        assert (begun := eventually(lambda: set(descendants()) - before, pause=0.001))
        worker.handle.process.kill()
        assert eventually(lambda: not any(map(is_running, begun)))


WRITE = tool("write.py")


def own_folders(sandbox) -> list[Path]:
    """The folders in memory that a sandbox's guards have made."""
    guards = [worker.handle.process.pid for worker in sandbox._connections]
    return [path for pid in guards for path in Path("/dev/shm").glob(f"spo-bench-{pid}-*")]


def test_the_folder_of_programs_goes_with_its_worker_or_at_the_next_start():
    if reason := form_unavailable("landlock"):
        pytest.skip(f"this machine has no landlock: {reason}")
    with EmbeddedSandbox(workers=1, form="landlock") as sandbox:
        assert list(sandbox.run([Job(WRITE, ("0",))], lambda *_: True))
        [folder] = own_folders(sandbox)
        assert not list(folder.iterdir())
    assert not folder.exists()
    with EmbeddedSandbox(workers=1, form="landlock") as sandbox:
        assert list(sandbox.run([Job("pass", ("",))], lambda *_: True))
        [folder] = own_folders(sandbox)
        [worker] = sandbox._connections
        worker.begin(Task(0, Job(WRITE, ("600",), Limits(cpu_s=20, wall_s=600))))
        worker.flush()
        assert eventually((folder / "closed").exists), "the program writes nothing"
        worker.handle.process.kill()
        worker.handle.process.wait()
        assert folder.exists()
    with EmbeddedSandbox(workers=1, form="landlock") as sandbox:
        assert list(sandbox.run([Job("pass", ("",))], lambda *_: True))
        assert not folder.exists()


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        (ATTACKS["resources: own folder below long paths"], Outcome.OUTPUT_LIMIT),
        (HONEST["script: files that come and go"], Outcome.FINISHED),
    ],
)
def test_a_folder_is_limited_and_emptied_whatever_its_depth_and_changes(program, outcome):
    with open_one("landlock") as sandbox:
        job = Job(program.program, ("{}",), Limits(cpu_s=10, wall_s=60))
        [(_, [execution])] = sandbox.run([job], lambda *_: True)
        assert execution.outcome is outcome, execution
        assert [list(folder.iterdir()) for folder in own_folders(sandbox)] == [[]]
        assert sandbox.replaced == 0


STAY = tool("stay.py")
AS_ONE_USER = """
from envs.sandbox.base import Job
from envs.sandbox.embedded import EmbeddedSandbox
with EmbeddedSandbox(workers=1, form="namespaces") as sandbox:
    [(_, executions)] = sandbox.run([Job(PROGRAM, ("",) * 3)], lambda *_: True)
print([execution.stdout.decode() for execution in executions])
"""


def test_where_there_is_one_user_only_tests_still_leave_nothing_to_each_other():
    reason = form_unavailable("namespaces")
    if reason or not shutil.which("unshare"):
        pytest.skip(f"this machine has no namespaces within namespaces: {reason}")
    program = f"PROGRAM = {STAY!r}\n{AS_ONE_USER}"
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stderr
    outputs = ast.literal_eval(done.stdout)
    assert len(set(outputs)) == 1
    assert "['stdin', 'stdout']" in outputs[0]
    assert "made" not in outputs[0]
