"""Honest programs of every kind print the same, byte for byte, as under a plain python3.

They also fail alike: an exit status of zero, or another one. In the fast tests a sample runs on one
sandbox of this machine; slow tests run all programs on all of them.
"""

import functools
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envs.sandbox.base import Job, Limits
from envs.sandbox.python_runtime import ENVIRONMENT
from tests.envs.honest.everyday import EVERYDAY
from tests.envs.paths import PATHS, OnPath
from tests.envs.sandbox.test_honest import SANDBOXES, lacking, open_one

LIMITS = Limits(cpu_s=10.0, wall_s=60.0, memory_mb=256, output_mb=4)
SAMPLE = [
    "expression: 0 heapq",
    "expression: 112 builtins",
    "reading: input until EOF: CRLF",
    "reading: /proc/self/fd/0: two lines",
    *(
        f"script: {name}"
        for name in (
            "CRLF lines split at blanks",
            "/dev/stdout after flush",
            "an uncaught exception",
            "signal to oneself",
            "SIGTERM to oneself",
            "signals to a thread, blocked, awaited",
            "a hundred threads",
            "ThreadPool",
            "multiprocessing's locks",
            "the own text",
            "a module of its own",
            "temporary folders",
            "a hundred files",
            "priority and affinity",
            "frames",
        )
    ),
]


@functools.cache
def under_plain_python(name: str) -> tuple[bytes, bool]:
    """What a program prints, and whether it succeeds, in a folder of its own."""
    program, text = EVERYDAY[name]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.py").write_text(program, "utf-8")
        done = subprocess.run(
            [sys.executable, "-B", "-W", "ignore", "main.py"],
            input=text.encode(),
            capture_output=True,
            cwd=folder,
            env=ENVIRONMENT,
            timeout=600,
            # in a job that a shell runs in the background, it is ignored
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    return done.stdout, done.returncode == 0


def differences(sandbox_name: str, path: str, names: Iterable[str]) -> dict[str, object]:
    """The programs that end otherwise than under a plain python3."""
    names = list(names)
    with ThreadPoolExecutor(2) as pool:
        expected = [*pool.map(under_plain_python, names)]
    jobs = [Job(program, (text,), LIMITS) for program, text in map(EVERYDAY.get, names)]
    found = {}
    with open_one(sandbox_name) as sandbox:
        for index, [execution] in OnPath(sandbox, path).run(jobs, lambda *_: True):
            ended = execution.stdout, execution.exit_code == 0
            if ended != expected[index]:
                found[names[index]] = (expected[index], ended, execution)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_a_sample_prints_the_same(path):
    here = [name for name in SANDBOXES if not lacking(name)]
    if not here:
        pytest.skip("this machine has no sandbox")
    assert differences(here[0], path, SAMPLE) == {}


# Slow: hundreds of interpreters, and hundreds of programs on every sandbox.
@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "sandbox", [*SANDBOXES[:2], pytest.param("docker", marks=pytest.mark.docker)]
)
def test_all_print_the_same(sandbox, path):
    if reason := lacking(sandbox):
        pytest.skip(f"no {sandbox}: {reason}")
    assert differences(sandbox, path, EVERYDAY) == {}


def test_they_are_hundreds():
    assert len(EVERYDAY) >= 300
    assert set(SAMPLE) <= set(EVERYDAY)
