"""Channels: data that one program could leave for a later one in the same worker."""

import secrets as randomness
import time

import pytest

from envs.sandbox.base import Job, Limits, Outcome
from tests.envs.programs import tool
from tests.envs.sandbox.test_attacks import canary, fresh_secret, sandbox

__all__ = ["canary", "sandbox"]  # fixtures

LIMITS = Limits(cpu_s=5.0, wall_s=30.0, memory_mb=1024, output_mb=2)
# The server wipes what it drops by the same code in both embedded forms.
one_embedded_form = pytest.mark.parametrize(
    "sandbox",
    [
        "namespaces",
        pytest.param("landlock", marks=pytest.mark.slow),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
    indirect=True,
)
# A program may not know its memory's regions (there may be no /proc), but the allocator hands it
# what was freed before, as it was.
HEAP = tool("heap.py")
SLOW_TO_COMPILE = "x = " + "1 < " * 10**6 + "1"


def execute(sandbox, program, *inputs, fn_name=None, limits=LIMITS):
    """Run a program unlike any before on inputs, going on after failures."""
    job = Job(f"{program}\n# {randomness.token_hex(4)}", inputs or ("",), limits, fn_name)
    [(_, executions)] = sandbox.run([job], lambda *_: True)
    return executions


@one_embedded_form
def test_inputs_dropped_after_a_crash_of_the_compiler_are_not_in_the_next_programs_memory(sandbox):
    limits = Limits(cpu_s=0.1, wall_s=30.0, memory_mb=4000)
    secrets = [f"{fresh_secret()}\n" * 300 for _ in range(2)]
    [crashed] = execute(sandbox, SLOW_TO_COMPILE, *secrets, limits=limits)
    assert crashed.outcome is Outcome.TIME_LIMIT and crashed.cpu_s > 1
    assert execute(sandbox, HEAP)[0].stdout == b"[]\n"


@one_embedded_form
def test_later_inputs_dropped_after_a_failure_are_not_in_the_next_tests_memory(sandbox):
    inputs = [f"{fresh_secret()}\n" * 300 for _ in range(3)]
    executions = execute(sandbox, HEAP + "\nraise SystemExit(1)", *inputs)
    results = [(e.stdout, e.outcome) for e in executions]
    assert results == [(b"[]\n", Outcome.RUNTIME_ERROR)] * 3


FLAGS = tool("flags.py")


def test_flags_of_the_null_device_say_nothing_of_the_program_before(sandbox):
    first, second = (execute(sandbox, FLAGS, "[true]", fn_name="f")[0].stdout for _ in range(2))
    assert first == second


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_flags_of_the_standard_streams_say_nothing_of_the_test_before(sandbox, descriptor):
    program = (
        "import fcntl, os\n"
        f"flags = fcntl.fcntl({descriptor}, fcntl.F_GETFL)\n"
        f"fcntl.fcntl({descriptor}, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_APPEND)\n"
        "print(flags)"
    )
    first, second = execute(sandbox, program, "", "")
    assert first.stdout == second.stdout


def test_the_files_of_the_standard_streams_say_nothing_of_the_program_before(sandbox):
    leave = (
        "import os, sys\nsys.stdin.read(10)\nos.write(1, b'left' * 1000)\nos.write(2, b'left')\n"
        "os.write(0, b'left' * 9000)\nfor name in 'stdin', 'stdout':\n"
        "    with open(f'/dev/{name}', 'r+b') as file: file.seek(20000); file.write(b'left')"
    )
    look = (
        "import os\nfound = []\nfor name in 'stdin', 'stdout':\n"
        "    status = os.stat(f'/dev/{name}')\n"
        "    found += [status.st_size, status.st_blocks, status.st_mode, status.st_nlink]\n"
        "    found += [status.st_atime > START, status.st_mtime > START]\n"
        "    found += [open(f'/dev/{name}', 'rb').read()]\nprint(found)"
    )
    execute(sandbox, "pass")  # in a worker that has started by now
    start = f"START = {time.time()}\n"
    time.sleep(0.05)  # the kernel dates files by ticks of a few milliseconds
    [before] = execute(sandbox, start + look)
    [left] = execute(sandbox, leave, "some input")
    assert left.outcome is Outcome.FINISHED, left.stderr
    [after] = execute(sandbox, start + look)
    assert after.stdout == before.stdout


IDS = tool("ids.py")


def test_ids_of_processes_and_threads_say_nothing_where_each_test_has_its_own(sandbox):
    outputs = {execution.stdout for _ in range(2) for execution in execute(sandbox, IDS, "", "")}
    # It takes a PID namespace for each test to hide them; see docs/reference/judging.md.
    counts_on = sandbox.name == "docker" or sandbox.form == "landlock"
    assert len(outputs) == (4 if counts_on else 1)


FOLDER = tool("folder.py")


def test_the_folder_of_a_program_says_nothing_of_the_program_before(sandbox):
    leave = (
        "import os\nos.makedirs('a/b')\nos.umask(0o777)\nos.mkdir('closed')\nos.remove('main.py')\n"
        "for number in range(99):\n"
        "    with open(f'left-{number}', 'wb') as file: file.write(b'left' * 9000)\n"
        "    if number % 2: os.remove(f'left-{number}')\n"
    )
    form = getattr(sandbox, "form", "docker")
    execute(sandbox, "open  # a folder")  # in a worker that has started by now
    look = f"START, FORM = {time.time()}, {form!r}\n{FOLDER}"
    time.sleep(0.05)  # the kernel dates files by ticks of a few milliseconds
    [before] = execute(sandbox, look)
    assert before.outcome is Outcome.FINISHED, before.stderr
    left = execute(sandbox, leave, "", "")
    assert [one.outcome for one in left] == [Outcome.FINISHED] * 2, left[0].stderr
    [after] = execute(sandbox, look)
    assert after.stdout == before.stdout


def test_a_program_without_use_for_a_folder_can_write_to_none(sandbox):
    program = (
        "import os, posix\nmake = getattr(posix, 'op' + 'en')\n"
        "for folder in '', '/work/', '/dev/shm/', '/tmp/':\n"
        "    try: print(make(folder + 'left', os.O_WRONLY | os.O_CREAT))\n"
        "    except OSError: pass\n"
        "    try: print(getattr(posix, 'mk' + 'dir')(folder + 'left'))\n"
        "    except OSError: pass\n"
        "print('held')"
    )
    [execution] = execute(sandbox, program)
    assert execution.stdout == b"held\n"
