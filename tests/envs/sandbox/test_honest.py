"""Honest programs: every sandbox accepts those that a plain python3 accepts, with the same output.

Each runs as one-shot, and from a runner. Of those whose output the header does not state, the fast
tests run a sample.
"""

import functools
import io
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envs.judge.checkers import check
from envs.sandbox.base import Job, Limits, Outcome, Sandbox
from envs.sandbox.python_runtime import ENVIRONMENT, versions
from tests.envs.programs import EVERYDAY, HONEST, STATED, tool
from tests.envs.sandboxes import (
    EVERY_SANDBOX,
    PATHS,
    SANDBOXES,
    OneOpen,
    OnPath,
    lacking,
    open_one,
    sandbox_in_turn,
    turns_and_pairs,
)

LIMITS = Limits(cpu_s=10.0, wall_s=60.0, memory_mb=256, output_mb=4)
CALLER = tool("caller.py")


@pytest.fixture(scope="module")
def opened():
    with OneOpen(open_one) as opened:
        yield opened


@pytest.fixture
def sandbox(request, opened) -> Sandbox:
    """One worker of the sandbox that a test asks for, or whose turn it is."""
    return opened.at(sandbox_in_turn(request.param))


@functools.cache
def under_plain_python(name: str) -> tuple[bytes, bool]:
    """What a program prints, and whether it succeeds, in a folder of its own."""
    honest = HONEST[name]
    arguments, text = ["main.py"], honest.input
    if honest.fn_name:
        script = f"import sys; sys.path.insert(0, '.')\n{CALLER}"
        arguments, text = ["-c", script, honest.input, honest.output], ""
    with tempfile.TemporaryDirectory() as folder:
        # in the encoding that it names, as its author saved it
        declared, _ = tokenize.detect_encoding(io.BytesIO(honest.program.encode()).readline)
        saved = honest.program.removeprefix("\ufeff").encode(declared)
        Path(folder, "main.py").write_bytes(saved)
        with tempfile.TemporaryFile() as stdin:  # a file, as judges give: its size is known
            stdin.write(text.encode())
            stdin.seek(0)
            done = subprocess.run(
                [sys.executable, "-B", "-W", "ignore", *arguments],
                stdin=stdin,
                capture_output=True,
                cwd=folder,
                env=ENVIRONMENT,
                timeout=600,
                # in a job that a shell runs in the background, it is ignored
                preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )
    return done.stdout, done.returncode == 0


# Slow: an interpreter for each. A wrong statement also fails in every sandbox. Names that contest
# sites import, such as List, are not plain python's.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STATED if not name.endswith("of the sites")])
def test_plain_python_accepts_it(name):
    printed, succeeded = under_plain_python(name)
    assert succeeded
    if not STATED[name].fn_name:
        assert printed.decode() == STATED[name].output


@pytest.mark.parametrize(("name", "sandbox"), turns_and_pairs(STATED), indirect=["sandbox"])
def test_every_sandbox_accepts_it(name, sandbox):
    honest = STATED[name]
    for path in PATHS:
        inputs = (honest.input,) * (1 if path == "one_shot" else 2)
        job = Job(honest.program, inputs, LIMITS, honest.fn_name)
        [(_, executions)] = OnPath(sandbox, path).run([job], lambda *_: True)
        assert len(executions) == len(inputs), path
        for execution in executions:
            assert (execution.outcome, execution.exit_code) == (Outcome.FINISHED, 0), path
            if honest.fn_name:
                assert check("call", honest.output, execution.stdout) == (True, ""), path
            else:
                assert execution.stdout.decode() == honest.output, path


def differences(sandbox_name: str, path: str, names: Iterable[str]) -> dict[str, object]:
    """The programs that end otherwise than under a plain python3."""
    names = list(names)
    with ThreadPoolExecutor(2) as pool:
        expected = [*pool.map(under_plain_python, names)]
    jobs = [Job(EVERYDAY[name].program, (EVERYDAY[name].input,), LIMITS) for name in names]
    found = {}
    with open_one(sandbox_name) as sandbox:
        for index, [execution] in OnPath(sandbox, path).run(jobs, lambda *_: True):
            ended = execution.stdout, execution.exit_code == 0
            if ended != expected[index]:
                found[names[index]] = (expected[index], ended, execution)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_a_sample_prints_the_same(path):
    here = next((name for name in SANDBOXES if not lacking(name)), SANDBOXES[0])
    assert differences(here, path, list(EVERYDAY)[::13]) == {}


# Slow: hundreds of interpreters, and hundreds of programs on every sandbox.
@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sandbox", EVERY_SANDBOX)
def test_all_print_the_same(sandbox, path):
    assert differences(sandbox, path, EVERYDAY) == {}


WHAT_IS_THERE = tool("what_is_there.py")


@pytest.mark.docker
def test_a_program_finds_the_same_on_every_sandbox():
    """Interpreter, packages, environment, limits and devices are equal, however it runs."""
    descriptions = []
    for name in [name for name in SANDBOXES if not lacking(name)]:
        with open_one(name) as sandbox:
            for path in PATHS:
                job = Job(WHAT_IS_THERE, ("",), LIMITS)
                [(_, [execution])] = OnPath(sandbox, path).run([job], lambda *_: True)
                assert execution.outcome is Outcome.FINISHED, execution.stderr
                descriptions.append(execution.stdout.decode().splitlines())
    assert descriptions[0][0] == versions()
    assert all(description == descriptions[0] for description in descriptions)
