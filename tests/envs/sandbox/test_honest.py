"""Honest programs: every sandbox of this machine accepts those that a plain python3 accepts.

Each runs as one-shot, and from a runner. In the fast tests each meets one sandbox of this machine:
they take turns. Slow tests run it on all of them.
"""

import ast
import functools
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator

import pytest

from envs.judge.checkers import check
from envs.sandbox import SandboxConfig, open_sandbox
from envs.sandbox.base import Execution, Job, Limits, Outcome, Sandbox
from envs.sandbox.docker import unavailable
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
from envs.sandbox.python_runtime import versions
from tests.envs.honest.base import Honest
from tests.envs.honest.programs import PROGRAMS
from tests.envs.paths import PATHS, OnPath
from tests.envs.turns import OneOpen, sandbox_in_turn, turns_and_pairs

SANDBOXES = ["namespaces", "landlock", "docker"]
LIMITS = Limits(cpu_s=5.0, wall_s=20.0, memory_mb=256, output_mb=4)
CALLER = """
import json, main, sys
target = getattr(main.Solution(), "f") if hasattr(main, "Solution") else main.f
result, expected = target(*json.loads(sys.argv[1])), json.loads(sys.argv[2])
if isinstance(result, dict):
    result = {str(key): value for key, value in result.items()}
elif isinstance(result, tuple):
    result = json.loads(json.dumps(result))
sys.exit(result != expected)
"""


@functools.cache
def lacking(name: str) -> str | None:
    """Why this machine does not have a sandbox; None if it has."""
    return unavailable() if name == "docker" else form_unavailable(name)


def open_one(name: str) -> Sandbox:
    """One worker of a sandbox."""
    if name == "docker":
        return open_sandbox(SandboxConfig(kind="docker", workers=1))
    return EmbeddedSandbox(workers=1, form=name)


@pytest.fixture(scope="module")
def opened() -> Iterator[OneOpen]:
    with OneOpen(open_one) as opened:
        yield opened


@pytest.fixture
def sandbox(request, opened) -> Sandbox:
    """One worker of the sandbox that a test asks for, or whose turn it is."""
    name = sandbox_in_turn(request.param, SANDBOXES, lacking)
    if reason := lacking(name):
        pytest.skip(f"no {name}: {reason}")
    return opened.at(name)


def encoded(program: str) -> bytes:
    """The file that its author saved: in the encoding that it names."""
    declared, _ = tokenize.detect_encoding(io.BytesIO(program.encode()).readline)
    return program.removeprefix("\ufeff").encode(declared)


def numpy_or_skip(name: str) -> None:
    if name.startswith("numpy"):
        pytest.importorskip("numpy")


# Slow: an interpreter for each. A wrong expectation of PROGRAMS also fails in every sandbox.
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_python_accepts_it(name, tmp_path):
    numpy_or_skip(name)
    honest = PROGRAMS[name]
    (tmp_path / "main.py").write_bytes(encoded(honest.program))
    command = [sys.executable, "-P", "-B", "-W", "ignore"]
    text = honest.input
    if honest.fn_name:
        command += ["-c", f"import sys; sys.path.insert(0, '.')\n{CALLER}", text, honest.output]
        text = ""
    else:
        command.append("main.py")
    done = subprocess.run(
        command,
        input=text.encode(),
        capture_output=True,
        cwd=tmp_path,
        env={"LC_ALL": "C.UTF-8", "ONLINE_JUDGE": "true"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr.decode()
    if not honest.fn_name:
        assert done.stdout.decode() == honest.output


@pytest.mark.parametrize(
    ("name", "sandbox"), turns_and_pairs(PROGRAMS, SANDBOXES), indirect=["sandbox"]
)
def test_every_sandbox_accepts_it(name, sandbox):
    numpy_or_skip(name)
    honest = PROGRAMS[name]
    for path in PATHS:
        inputs = (honest.input,) * (1 if path == "one_shot" else 2)
        job = Job(honest.program, inputs, LIMITS, honest.fn_name)
        [(_, executions)] = OnPath(sandbox, path).run([job], lambda *_: True)
        assert len(executions) == len(inputs), path
        for execution in executions:
            require_right(honest, execution, path)


def require_right(honest: Honest, execution: Execution, path: str) -> None:
    """Assert that a program ended well, with the output that a plain python3 gives."""
    assert execution.outcome is Outcome.FINISHED, (path, execution)
    assert execution.exit_code == 0, path
    if honest.fn_name:
        assert check("call", honest.output, execution.stdout) == (True, ""), path
    else:
        assert execution.stdout.decode() == honest.output, path


WHAT_IS_THERE = """
import gc, locale, os, platform, resource, signal, sys, numpy
print(f"python {platform.python_version()}, numpy {numpy.__version__}")
print(sys.executable, sys.flags, [type(finder) for finder in sys.meta_path])
print(sys.path[0] == os.getcwd(), sys.path[1:])  # the program's own folder, wherever it is
print(sorted(os.environ.items()), os.listdir(), sys.argv, sys.stdin, sys.stdout, sys.stderr)
print(sorted(sys.modules), gc.get_threshold())
print(locale.getpreferredencoding(), hash("x"), signal.getsignal(signal.SIGINT), os.umask(0))
for name in "AS", "STACK", "NOFILE", "FSIZE", "CPU", "CORE", "MEMLOCK":
    soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
    print(name, name == "AS" or soft, name == "AS" or hard)
for path in "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null", "/dev/zero", "/dev/urandom":
    for mode in "rb", "ab":
        try:
            open(path, mode).close()
        except OSError as error:
            print(path, mode, error)
for name in "scipy", "pandas", "pip", "_pytest", "setuptools", "torch":
    try:
        __import__(name)
    except ImportError as error:
        print(type(error), error)
"""


@pytest.mark.docker
def test_a_program_finds_the_same_on_every_sandbox():
    """Interpreter, packages, environment, limits and devices are equal, however it runs."""
    names = [name for name in SANDBOXES if not lacking(name)]
    if len(names) < 2:
        pytest.skip("this machine has one sandbox at most")
    descriptions = []
    for name in names:
        with open_one(name) as sandbox:
            for path in PATHS:
                job = Job(WHAT_IS_THERE, ("",), LIMITS)
                [(_, [execution])] = OnPath(sandbox, path).run([job], lambda *_: True)
                assert execution.outcome is Outcome.FINISHED, execution.stderr
                descriptions.append(execution.stdout.decode().splitlines())
    assert descriptions[0][0] == versions()
    assert all(description == descriptions[0] for description in descriptions)


def test_they_are_many_and_parse():
    assert len(PROGRAMS) >= 100
    for honest in PROGRAMS.values():
        ast.parse(honest.program.removeprefix("\ufeff"))
        if honest.fn_name:
            json.loads(honest.input), json.loads(honest.output)
