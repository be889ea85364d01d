"""Compiling checkers: once each, within limits, with messages that name the cure."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envs.judge import testlib
from envs.judge.testlib import (
    CheckerDoesNotCompile,
    CompilerMissing,
    find_toolchain,
    native_program,
)
from tests.envs.judge.checkers import HEADER, SPLIT
from tests.envs.programs import tool

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
# The real testlib.h, where it is installed or named.
try:
    REAL = find_toolchain(os.environ.get("SPO_BENCH_TESTLIB")).header
except CompilerMissing:
    REAL = None
# Any body: what is in the files, and how the checker ends.
SHOWS_FILES = tool("shows_files.cpp")


@pytest.fixture
def header() -> Path:
    return HEADER


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "checkers"


def run(executable: bytes, files: list[bytes]) -> subprocess.CompletedProcess:
    """Run a native program outside of any sandbox."""
    command = [sys.executable, "-c", "import sys; exec(open(sys.argv[1]).read())"]
    program = native_program(executable)
    data = " ".join(str(len(file)) for file in files).encode() + b"\n" + b"".join(files)
    with open(os.memfd_create("program"), "w+b") as file:
        file.write(program.encode())
        file.flush()
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        return subprocess.run([*command, path], input=data, capture_output=True, timeout=60)


@needs_compiler
def test_an_executable_finds_its_files_and_ends_with_its_status(header):
    executable = find_toolchain(str(header)).compile(SHOWS_FILES)
    for files in ([b"in\n", b"\x00\xff out", b"right"], [b"", b"", b""], [b"x" * 200_000] * 3):
        done = run(executable, files)
        assert done.stdout.decode().split("\n")[:3] == [file.hex() for file in files]
        assert (done.returncode, done.stderr) == (5, b"as a reason")


@needs_compiler
def test_a_checker_is_compiled_once(header, cache, monkeypatch):
    compiled = []
    original = testlib._run_limited
    monkeypatch.setattr(testlib, "_run_limited", lambda *a: (compiled.append(1), original(*a))[1])
    sources = ["int main() { return 0; }", "int main() { return 1; }"]
    toolchain = find_toolchain(str(header))
    first = testlib.compile_all(toolchain, [*sources, sources[0]])
    assert len(compiled) == 2 and len(list(cache.iterdir())) == 2
    assert testlib.compile_all(find_toolchain(str(header.parent)), sources) == first
    assert len(compiled) == 2
    [file, _] = sorted(cache.iterdir())
    file.write_bytes(b"cut off")
    assert testlib.compile_all(toolchain, sources) == first
    assert len(compiled) == 3


@needs_compiler
def test_another_header_gives_another_digest(header, tmp_path):
    (tmp_path / "testlib.h").write_text(HEADER.read_text() + "// another\n")
    digests = {testlib.testlib_digest(str(place)) for place in (header, tmp_path)}
    assert len(digests) == 2 and "" not in digests
    assert testlib.testlib_digest(str(tmp_path / "nothing")) == ""


@needs_compiler
def test_a_source_that_does_not_compile_is_named_in_one_line(header, cache):
    with pytest.raises(CheckerDoesNotCompile, match=r"checker.cpp:\d+:\d+: error: .*nonsense"):
        find_toolchain(str(header)).compile("int main() { return nonsense; }")
    assert not cache.exists()


@needs_compiler
@pytest.mark.parametrize(
    "source",
    [
        # as long as one lets them: templates without end, and an array of 8 GB in the executable
        "template<int n> struct A { static const int v = A<n - 1>::v + A<n - 2>::v; };\n"
        "template<int n, int m> struct B { static const int v = B<n - 1, m>::v + B<n, m - 1>::v;"
        "};\nint main() { return B<800, 800>::v; }",
        "#include <cstdio>\nchar a[8000000000L] = {1};\nint main() { return a[0]; }",
        # slow: seconds of CPU
        pytest.param('#include "/dev/zero"\nint main() {}', marks=pytest.mark.slow),
    ],
    ids=["templates", "huge executable", "endless include"],
)
def test_a_hostile_source_ends_at_a_limit(header, cache, monkeypatch, source):
    monkeypatch.setattr(testlib, "_LIMITED", testlib._LIMITED.replace("-t 60", "-t 1"))
    monkeypatch.setattr(testlib, "_WALL_S", 20.0)
    started = time.monotonic()
    with pytest.raises(CheckerDoesNotCompile):
        find_toolchain(str(header)).compile(source)
    assert time.monotonic() - started < 60


def test_without_a_compiler_the_message_says_what_to_install(header, monkeypatch):
    monkeypatch.setattr(testlib.shutil, "which", lambda _: None)
    with pytest.raises(CompilerMissing, match=r"apt-get install g\+\+ .* task.checkers=false"):
        find_toolchain(str(header))


READS_BY_STREAMS = tool("reads_by_streams.cpp")


@needs_compiler
@pytest.mark.slow  # large headers
def test_a_checker_may_read_its_files_by_streams(header):
    executable = find_toolchain(str(header)).compile(READS_BY_STREAMS)
    done = run(executable, [b"12 3\n4\n", b"abc" * 100_000 + b" d", b"5"])
    sizes = ["7 7 12", "2 3", f"300002 300002 {'abc' * 100_000}", f"bc{'abc' * 99_999} d", "1 1 5"]
    assert done.stdout.decode().splitlines() == [*sizes, ""], done.stderr
    assert done.returncode == 0


@needs_compiler
@pytest.mark.slow  # ten thousand lines of headers
@pytest.mark.skipif(REAL is None, reason="needs testlib.h; SPO_BENCH_TESTLIB names its place")
def test_the_real_testlib_agrees_with_the_small_one(header):
    outputs = {b"2 3\n": 0, b"2 4": 1, b"2": 2, b"0 5": 1, b"x": 2, b"2 3 4": 2}
    for place in (REAL, header):
        executable = find_toolchain(str(place)).compile(SPLIT.testlib.source)
        found = {out: run(executable, [b"5\n", out, b"1 4\n"]).returncode for out in outputs}
        assert found == outputs, place
