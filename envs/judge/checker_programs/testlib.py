"""Compile checkers in C++ on testlib.h, each once.

The compiler runs outside the sandbox, which holds neither a compiler nor headers. So the source of
a checker is trusted to that degree: it is data of the data set, never of a model, and a compiler
executes none of it. A hostile source could make the compiler read a file of this machine (#include)
into the executable, which runs in the sandbox and only answers by an exit status; or make it work
without end, for which there are limits of time, memory and output.

testlib.h (Mike Mirzayanov, MIT licence) is not part of this project: the user installs it, or names
its place in `judge.testlib`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from envs.cache_folder import cache_root
from envs.judge.native_program import FILES_SOURCE, WRAPPED
from envs.sandbox.pool import default_workers

HEADER = "testlib.h"
_FOLDERS = ("/usr/local/include", "/usr/include")
_COMPILERS = ("g++", "clang++")
# Static, since the sandbox holds few libraries; independent of its address, since it is loaded into
# a process that has its own program (`native_program.py`).
_FLAGS = (
    *("-std=c++17", "-O1", "-w", "-s", "-fPIE", "-static-pie"),
    *(f"-Wl,--wrap={name}" for name in WRAPPED),
)
_CPU_S, _WALL_S = 60, 180.0  # a checker takes some 3 s
_MEMORY_KB, _FILE_BLOCKS = 4 << 20, 1 << 17  # of 512 bytes
_LIMITED = f'ulimit -t {_CPU_S}; ulimit -v {_MEMORY_KB}; ulimit -f {_FILE_BLOCKS}; exec "$@"'
_SMALLEST = '#include "testlib.h"\nint main() { return 0; }\n'
_MAX_ERROR_CHARS = 300
_REMEDY = ", or leave such problems out with task.checkers=false"


class CompilerMissing(ValueError):
    """No checker can be compiled here; the message says what to install."""


class CheckerDoesNotCompile(ValueError):
    """The source of one checker is at fault."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler and a testlib.h."""

    compiler: str
    version: str
    header: Path

    @functools.cached_property
    def digest(self) -> str:
        """16 hex digits over everything but the source that an executable depends on."""
        parts = (self.version, _FLAGS, FILES_SOURCE, self.header.read_bytes())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def compile(self, source: str) -> bytes:
        """Return the executable of a checker, from the cache folder if it is there.

        Raises CheckerDoesNotCompile.
        """
        key = hashlib.sha256(repr((self.digest, source)).encode()).hexdigest()[:32]
        file = cache_root() / "checkers" / f"{key}.zz"
        try:
            return zlib.decompress(file.read_bytes())
        except (OSError, zlib.error):
            executable = self._compile(source)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(zlib.compress(executable))
        os.replace(part.name, file)
        return executable

    def require(self) -> None:
        """Raise CompilerMissing unless a program without any content of its own compiles."""
        try:
            self.compile(_SMALLEST)
        except CheckerDoesNotCompile as error:
            raise CompilerMissing(
                f"{self.compiler} cannot compile testlib.h at {self.header}: {error}; it needs "
                "the static C and C++ libraries (Debian: apt-get install g++; Fedora: dnf install "
                f"gcc-c++ glibc-static libstdc++-static){_REMEDY}"
            ) from error

    def _compile(self, source: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="checker-") as name:
            folder = Path(name)
            # Python's own text files would translate a lone carriage return.
            (folder / "checker.cpp").write_bytes(source.encode("utf-8", "surrogatepass"))
            (folder / "files.cpp").write_text(FILES_SOURCE)
            shutil.copyfile(self.header, folder / HEADER)
            command = [self.compiler, *_FLAGS, "-I.", "checker.cpp", "files.cpp", "-o", "checker"]
            error = _run_limited(command, folder)
            if error is not None:
                raise CheckerDoesNotCompile(error)
            return (folder / "checker").read_bytes()


def find_toolchain(testlib: str | None) -> Toolchain:
    """Return the system's compiler and testlib.h, at `testlib` (a file or its folder) or installed.

    Raises CompilerMissing.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise CompilerMissing(
            "checkers in C++ need a compiler: apt-get install g++ (or clang)" + _REMEDY
        )
    header = find_header(testlib)
    if header is None:
        where = f"judge.testlib={testlib} holds no" if testlib else "checkers in C++ need"
        raise CompilerMissing(
            f"{where} testlib.h: download it from github.com/MikeMirzayanov/testlib and give its "
            f"place, judge.testlib=FILE_OR_FOLDER{_REMEDY}"
        )
    return Toolchain(compiler, _version(compiler), header)


def find_header(testlib: str | None) -> Path | None:
    """Return testlib.h: the file that is named, or in the folder that is, or installed."""
    if testlib is None:
        places = [Path(folder, HEADER) for folder in _FOLDERS]
    else:
        place = Path(testlib).expanduser()
        places = [place / HEADER, place]
    return next((place.resolve() for place in places if place.is_file()), None)


def testlib_digest(testlib: str | None) -> str:
    """Return a digest of what the decisions of checkers on testlib depend on; "" without one."""
    try:
        return find_toolchain(testlib).digest
    except CompilerMissing:
        return ""


def compile_all(toolchain: Toolchain, sources: Iterable[str]) -> dict[str, bytes | str]:
    """Return source → its executable, or why it has none. Compiles several at a time."""

    def compile_one(source: str) -> bytes | str:
        try:
            return toolchain.compile(source)
        except CheckerDoesNotCompile as error:
            return str(error)

    distinct = list(dict.fromkeys(sources))
    with ThreadPoolExecutor(default_workers()) as threads:
        return dict(zip(distinct, threads.map(compile_one, distinct), strict=True))


@functools.cache
def _version(compiler: str) -> str:
    output = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60)
    return output.stdout.partition("\n")[0]


def _run_limited(command: list[str], folder: Path) -> str | None:
    """Run a command under limits; return why it failed, in one line, or None."""
    log = folder / "log"
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": "."}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            status = process.wait(_WALL_S)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the compiler's own processes too
                process.wait()
    if status == 0:
        return None
    if status is None:
        return f"the compiler did not end within {_WALL_S:.0f} s"
    with log.open("rb") as output:
        lines = output.read(1 << 16).decode("utf-8", "replace").splitlines()
    found = next((line for line in lines if "error" in line or "cannot" in line), "")
    return (found or (lines or [f"exit status {status}"])[-1])[:_MAX_ERROR_CHARS]
