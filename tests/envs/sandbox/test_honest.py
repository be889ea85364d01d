"""Honest programs: what a plain python3 accepts is accepted, in every sandbox of this machine."""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator

import pytest

from envs.checker import check
from envs.sandbox.base import Job, Limits, Outcome, Sandbox
from envs.sandbox.docker import unavailable
from envs.sandbox.embedded import EmbeddedSandbox, why_not
from envs.sandbox.select import SandboxConfig, open_sandbox
from tests.envs.honest import PROGRAMS

LIMITS = Limits(cpu_s=5.0, wall_s=20.0, memory_mb=256, output_mb=4)
CALLER = """
import json, main, sys
target = getattr(main.Solution(), "f") if hasattr(main, "Solution") else main.f
result, expected = target(*json.loads(sys.argv[1])), json.loads(sys.argv[2])
if isinstance(result, dict):
    result = {str(key): value for key, value in result.items()}
elif hasattr(result, "tolist"):
    result = result.tolist()
elif not isinstance(result, (list, int)):
    result = sorted(result)
sys.exit(result != expected)
"""


@pytest.fixture(
    scope="module",
    params=[
        "embedded-namespaces",
        "embedded-landlock",
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def sandbox(request) -> Iterator[Sandbox]:
    """One worker of each sandbox that this machine has."""
    if request.param == "docker":
        if reason := unavailable():
            pytest.skip(f"no Docker: {reason}")
        opened = open_sandbox(SandboxConfig(kind="docker", workers=1))
    else:
        form = request.param.removeprefix("embedded-")
        if reason := why_not(form):
            pytest.skip(f"no {form}: {reason}")
        opened = EmbeddedSandbox(workers=1, form=form)
    with opened:
        yield opened


def encoded(program: str) -> bytes:
    """The file that its author saved: in the encoding that it names."""
    declared, _ = tokenize.detect_encoding(io.BytesIO(program.encode()).readline)
    return program.removeprefix("\ufeff").encode(declared)


def numpy_or_skip(name: str) -> None:
    if name.startswith("numpy"):
        pytest.importorskip("numpy")


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
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    if not honest.fn_name:
        assert done.stdout.decode() == honest.output


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_sandbox_accepts_it(name, sandbox):
    numpy_or_skip(name)
    honest = PROGRAMS[name]
    job = Job(honest.program, (honest.input,) * 2, LIMITS, honest.fn_name)
    [(_, executions)] = sandbox.run([job], lambda *_: True)
    for execution in executions:
        assert execution.outcome is Outcome.FINISHED, execution
        assert execution.exit_code == 0
        if honest.fn_name:
            assert check("call", honest.output, execution.stdout) == (True, "")
        else:
            assert execution.stdout.decode() == honest.output


def test_they_are_many_and_parse():
    assert len(PROGRAMS) >= 100
    for honest in PROGRAMS.values():
        ast.parse(honest.program.removeprefix("\ufeff"))
        if honest.fn_name:
            json.loads(honest.input), json.loads(honest.output)
