"""What Python's standard library lacks (3.11), through ctypes: calls of Linux, a stack's end."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import resource
import signal
import struct
import sys

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from types import CodeType

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x1000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2
STACK_BYTES = 256 << 20  # of the main thread: deep recursion through C needs it
THREAD_STACK_BYTES = 8 << 20  # of a thread that requests no other size
OWN_PID = 0x7FFF_FFFF  # in a filter: the process that installs it; no process has this number

_CAPABILITY_HEADER = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, own process
# Offsets in the interpreter's structures of 3.11: of a thread's state the C frame, of that the
# current Python frame, of that the code.
_C_FRAME_OFFSET, _CURRENT_OFFSET, _CODE_OFFSET = 56, 8, 32

libc = ctypes.CDLL(None, use_errno=True)
_clone = ctypes.PyDLL(None, use_errno=True).syscall  # keeps the interpreter's lock
_X86 = os.uname().machine == "x86_64"
_CLONE = 56 if _X86 else 220
_THREAD_ID_OFFSET = 720 if _X86 else 208  # of the thread's id in glibc's struct pthread


def check(result: int, call: str) -> int:
    """Return the result of a C call; raise OSError, naming the call, if it is -1."""
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{call}: {os.strerror(errno)}")
    return result


def prctl(option: int, argument: object) -> None:
    """Call prctl(2) with one argument. Raises OSError."""
    check(libc.prctl(option, argument, 0, 0, 0), f"prctl {option}")


class Proc:
    """The folder /proc, opened before it goes out of sight."""

    def __init__(self) -> None:
        self.folder = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        # Whether the kernel counts how long a thread waits for a core.
        self.counts_waiting = False
        with contextlib.suppress(OSError):
            self.counts_waiting = any(map(int, self.read("self/schedstat").split()))

    def read(self, path: str, folder: int | None = None) -> bytes:
        """Read a file of /proc, or of an open folder in it."""
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self.folder if folder is None else folder)
        try:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
        finally:
            os.close(descriptor)

    def address_space(self) -> int:
        """Return the calling process's size in bytes."""
        return int(self.read("self/statm").split()[0]) * resource.getpagesize()

    def pids(self) -> set[int]:
        """Return the PIDs of all processes."""
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.folder)
        try:
            return {int(name) for name in os.listdir(folder) if name.isdigit()}
        finally:
            os.close(folder)


def fork_sibling(*, new_pid_namespace: bool) -> int:
    """Fork as os.fork does, but make the new process a child of this process's parent.

    Then one process can be the template of test processes while another watches them. Two steps of
    os.fork are left out. It recreates locks that other threads might hold, and there are no other
    threads here. It calls functions that modules registered, such as a new seed of `random`.
    Raises OSError.
    """
    return check(_clone(*_clone_arguments(new_pid_namespace)), "clone")


@functools.cache
def _clone_arguments(new_pid_namespace: bool) -> tuple[object, ...]:
    """Return the arguments of clone(2) for the only thread of this process and its descendants.

    The C library keeps a thread's id as the owner of recursive locks. A bare clone leaves the
    parent's id there. A thread of the program may get that id from the kernel, and would then pass
    locks that it does not own. So the kernel writes the new id, unless the library keeps the id
    elsewhere.
    """
    flags = signal.SIGCHLD | CLONE_PARENT | (CLONE_NEWPID if new_pid_namespace else 0)
    address = _thread.get_ident() + _THREAD_ID_OFFSET
    if ctypes.c_int.from_address(address).value != _thread.get_native_id():
        return _CLONE, flags, 0, 0, 0, 0
    own_id = ctypes.c_void_p(address)
    last = (own_id, 0) if _X86 else (0, own_id)
    return _CLONE, flags | CLONE_CHILD_SETTID, 0, 0, *last


def capability_sets(*kept: int) -> bytes:
    """Return the argument of `set_capabilities` that keeps these capabilities and no others."""
    mask = sum(1 << number for number in kept)  # all that are kept here are below 32
    return struct.pack("6I", mask, mask, 0, 0, 0, 0)


def set_capabilities(sets: bytes) -> None:
    """Call capset(2) on this process. Raises OSError."""
    check(libc.capset(_CAPABILITY_HEADER, sets), "capset")


class SeccompFilter:
    """A BPF program in the form that the kernel takes."""

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    def __init__(self, instructions: bytes) -> None:
        self._instructions = ctypes.create_string_buffer(instructions, len(instructions) or 1)
        place = ctypes.cast(self._instructions, ctypes.c_char_p)
        self._program = self._Program(len(instructions) // 8, place)
        self._pointer = ctypes.byref(self._program)
        own_pid = struct.pack("I", OWN_PID)
        self._own_pid_places = [
            offset
            for offset in range(4, len(instructions), 8)
            if instructions[offset : offset + 4] == own_pid
        ]

    def allow_own_signals(self) -> None:
        """Have the filter, once installed, allow signals to this process."""
        for offset in self._own_pid_places:
            struct.pack_into("I", self._instructions, offset, os.getpid())

    def install(self) -> None:
        """Confine this process irrevocably; without instructions, do nothing."""
        if self._program.length:
            result = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._pointer, 0, 0)
            check(result, "seccomp")


def current_frame(c_frame: int | None, code: CodeType) -> ctypes.c_void_p:
    """Return the place that names the current Python frame, which runs `code`.

    `c_frame` is `c_frame.value` as the caller sees it. While the place holds None, the next frame
    has nothing below it, as a script's has. In other versions of Python nobody reads the place.
    """
    if c_frame is None:
        return ctypes.c_void_p()
    place = ctypes.c_void_p.from_address(c_frame + _CURRENT_OFFSET)
    running = ctypes.c_void_p.from_address((place.value or 0) + _CODE_OFFSET).value
    known = running in (id(code), id(current_frame.__code__))
    return place if known else ctypes.c_void_p()


def _c_frame() -> ctypes.c_void_p:
    """Return the place that names the main thread's current C frame; None where it is unknown."""
    if sys.version_info[:2] != (3, 11):
        return ctypes.c_void_p()
    get_state = ctypes.pythonapi.PyThreadState_Get
    get_state.restype = ctypes.c_void_p
    return ctypes.c_void_p.from_address(get_state() + _C_FRAME_OFFSET)


c_frame = _c_frame()
