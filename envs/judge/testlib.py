"""Compile checkers in C++ on testlib.h, each once.

The compiler runs outside the sandbox, which holds neither a compiler nor headers. So the source of
a checker is trusted to that degree: it is data of the data set, never of a model, and a compiler
executes none of it. A hostile source could make the compiler read a file of this machine (#include)
into the executable, which runs in the sandbox and only answers by an exit status; or make it work
without end, for which there are limits of time, memory and output.

testlib.h (Mike Mirzayanov, MIT licence) is not part of this project: the user installs it, or names
its place in `judge.testlib`.

The sandbox runs Python programs, and its filter refuses exec to all of them. So a Python program
maps the executable into its own memory and jumps to it, as the kernel would. A checker has no right
that a contestant's program lacks, on any backend. The executable is linked statically and
independently of its address, and finds its files in memory (`testlib_files.cpp`).
"""

from __future__ import annotations

import base64
import contextlib
import errno
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

from envs.caching import cache_root
from envs.sandbox.pool import default_workers

HEADER = "testlib.h"
# Arguments of a checker, in this order: the input, the program's output, the expected output.
FILES = ("input.txt", "output.txt", "answer.txt")
# Linked to a checker: its files are pieces of standard input, whose first line holds their sizes.
_FILES_SOURCE = Path(__file__).with_name("testlib_files.cpp").read_text()
_WRAPPED = ("fopen", "fopen64", "fileno", "read", "lseek64")  # calls that it replaces
_FOLDERS = ("/usr/local/include", "/usr/include")
_COMPILERS = ("g++", "clang++")
_FLAGS = (
    *("-std=c++17", "-O1", "-w", "-s", "-fPIE", "-static-pie"),
    *(f"-Wl,--wrap={name}" for name in _WRAPPED),
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
        parts = (self.version, _FLAGS, _FILES_SOURCE, self.header.read_bytes())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def compile(self, source: str) -> bytes:
        """Return the executable of a checker, from the cache folder if it is there.

        Raises CheckerDoesNotCompile, and OSError where this machine fails, such as a full disk.
        """
        key = hashlib.sha256(repr((self.digest, source)).encode()).hexdigest()[:32]
        file = cache_root() / "checkers" / f"{key}.zz"
        try:
            return zlib.decompress(file.read_bytes())
        except (OSError, zlib.error):
            executable = self._compile(source)
        with contextlib.suppress(OSError):  # it is then compiled again another time
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                part = Path(folder, file.name)
                part.write_bytes(zlib.compress(executable))
                part.replace(file)
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
            (folder / "files.cpp").write_text(_FILES_SOURCE)
            shutil.copyfile(self.header, folder / HEADER)
            command = [self.compiler, *_FLAGS, "-I.", "checker.cpp", "files.cpp", "-o", "checker"]
            error = _run_limited(command, folder)
            if error is not None and shutil.disk_usage(folder).free < _FILE_BLOCKS << 9:
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}, {error}", name)
            if error is not None:
                raise CheckerDoesNotCompile(error)
            return (folder / "checker").read_bytes()


def find_toolchain(testlib: str | None) -> Toolchain:
    """Return the system's compiler and testlib.h, at `testlib` (a file or its folder) or installed.

    Raises CompilerMissing.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        message = "checkers in C++ need a compiler: apt-get install g++ (or clang)"
        raise CompilerMissing(message + _REMEDY)
    place = Path(testlib or "").expanduser()
    places = [place / HEADER, place] if testlib else [Path(one, HEADER) for one in _FOLDERS]
    header = next((place.resolve() for place in places if place.is_file()), None)
    if header is None:
        where = f"judge.testlib={testlib} holds no" if testlib else "checkers in C++ need"
        raise CompilerMissing(
            f"{where} testlib.h: download it from github.com/MikeMirzayanov/testlib and give its "
            f"place, judge.testlib=FILE_OR_FOLDER{_REMEDY}"
        )
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60)
    return Toolchain(compiler, version.stdout.partition("\n")[0], header)


def testlib_digest(testlib: str | None) -> str:
    """Return a digest of what the decisions of checkers on testlib depend on; "" without one."""
    try:
        return find_toolchain(testlib).digest
    except CompilerMissing:
        return ""


def compile_all(toolchain: Toolchain, sources: Iterable[str]) -> dict[str, bytes | str]:
    """Return source → its executable, or why it has none. Compiles several at a time.

    Raises OSError where this machine fails.
    """

    def compile_one(source: str) -> bytes | str:
        try:
            return toolchain.compile(source)
        except CheckerDoesNotCompile as error:
            return str(error)

    distinct = list(dict.fromkeys(sources))
    with ThreadPoolExecutor(default_workers()) as threads:
        return dict(zip(distinct, threads.map(compile_one, distinct), strict=True))


def _run_limited(command: list[str], folder: Path) -> str | None:
    """Run a command under limits; return why it failed, in one line, or None."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": "."},
            start_new_session=True,
        )
        try:
            status = process.wait(_WALL_S)
        except subprocess.TimeoutExpired:
            return f"the compiler did not end within {_WALL_S:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the compiler's own processes too
                process.wait()
    if status == 0:
        return None
    with log.open("rb") as output:
        lines = output.read(1 << 16).decode("utf-8", "replace").splitlines()
    found = next((line for line in lines if "error" in line or "cannot" in line), "")
    return (found or (lines or [f"exit status {status}"])[-1])[:_MAX_ERROR_CHARS]


# ---- an executable as a Python program ----

# Exit status 3 is a checker's own failure, which is what a failure of this program is.
_LOADER = '''\
import base64, ctypes, mmap, os, struct, zlib

libc = ctypes.CDLL(None)
PAGE = 1 << 16  # the largest page of any machine
STACK_BYTES = 128 << 20
JUMP = {  # to the second argument, with the first as the stack
    "x86_64": b"\\x48\\x89\\xfc\\x31\\xd2\\x31\\xed\\xff\\xe6",
    "aarch64": b"\\x1f\\x00\\x00\\x91\\x00\\x00\\x80\\xd2\\x20\\x00\\x1f\\xd6",
}
MACHINES = {"x86_64": 62, "aarch64": 183}
KERNEL_FACTS = (6, 11, 12, 13, 14, 16, 17, 23, 25, 26, 33, 51)  # AT_PAGESZ ... AT_MINSIGSTKSZ


def memory(size):
    """Return (address, mapping) of zeroed memory, aligned to PAGE."""
    mapping = mmap.mmap(-1, size + PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    return (start + PAGE - 1) // PAGE * PAGE, mapping


def protect(address, size, protection):
    """Protect whole pages of memory; after this, what was written there can be executed."""
    begin, end = address // mmap.PAGESIZE, -(-(address + size) // mmap.PAGESIZE)
    length = ctypes.c_size_t((end - begin) * mmap.PAGESIZE)
    if libc.mprotect(ctypes.c_void_p(begin * mmap.PAGESIZE), length, protection):
        raise OSError("mprotect")


def segments(image, start, size, count):
    """Yield (protection, offset, address, bytes in the file, bytes in memory) of what is loaded."""
    for number in range(count):
        kind, flags, offset, address, _, in_file, in_memory, _ = struct.unpack_from(
            "<IIQQQQQQ", image, start + number * size
        )
        if kind == 1:
            protection = bool(flags & 4) * mmap.PROT_READ | bool(flags & 2) * mmap.PROT_WRITE
            protection |= bool(flags & 1) * mmap.PROT_EXEC
            yield protection, offset, address, in_file, in_memory


def run(image):
    machine = os.uname().machine
    kind, for_machine = struct.unpack_from("<HH", image, 16)
    if image[:4] != b"\\x7fELF" or kind != 3 or for_machine != MACHINES.get(machine):
        raise ValueError(f"not a position-independent executable for {machine}")
    entry, headers = struct.unpack_from("<QQ", image, 24)
    header_size, count = struct.unpack_from("<HH", image, 54)
    loaded = list(segments(image, headers, header_size, count))
    base, _code = memory(max(address + size for *_, address, _, size in loaded))
    for protection, offset, address, size, in_memory in loaded:
        ctypes.memmove(base + address, image[offset : offset + size], size)
        protect(base + address, in_memory, protection)
    auxiliary = [3, base + headers, 4, header_size, 5, count, 7, 0, 9, base + entry]
    fact = libc.getauxval
    fact.restype, fact.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    for key in KERNEL_FACTS:
        if value := fact(key):
            auxiliary += [key, value]
    texts = [ctypes.create_string_buffer(text) for text in ARGUMENTS]
    addresses = map(ctypes.addressof, texts)
    words = [len(texts), *addresses, 0, 0, *auxiliary, 0, 0]
    stack, _stack = memory(STACK_BYTES)
    top = (stack + STACK_BYTES - 8 * len(words)) & ~0xF
    ctypes.memmove(top, struct.pack(f"<{len(words)}Q", *words), 8 * len(words))
    jump, _jump = memory(PAGE)
    ctypes.memmove(jump, JUMP[machine], len(JUMP[machine]))
    protect(jump, PAGE, mmap.PROT_READ | mmap.PROT_EXEC)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(jump)(top, base + entry)


try:
    run(zlib.decompress(base64.b64decode(IMAGE)))
except BaseException as error:
    os.write(2, f"the checker does not start: {error!r}".encode())
os._exit(3)
'''


def native_program(executable: bytes) -> str:
    """Return a Python program that becomes this executable, with FILES as its arguments."""
    image = base64.b64encode(zlib.compress(executable))
    arguments = [b"checker", *(name.encode() for name in FILES)]
    return f"IMAGE = {image!r}\nARGUMENTS = {arguments!r}\n{_LOADER}"
