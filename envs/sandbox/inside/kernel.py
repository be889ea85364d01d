"""Linux calls that Python's standard library lacks (3.11), through ctypes."""

from __future__ import annotations

import _thread
import ctypes
import functools
import os
import signal
import struct

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x1000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2
_UNWRITABLE, _PROT_WRITE = {b"r--p": 1, b"r-xp": 5}, 2  # as /proc and as mmap(2) has them
_LARGE_BYTES = 256 << 10
STACK_BYTES = 256 << 20  # of the main thread: deep recursion through C needs it
THREAD_STACK_BYTES = 16 << 20  # of a thread that asks for no other

_CAPABILITY_HEADER = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, oneself

libc = ctypes.CDLL(None, use_errno=True)
_clone = ctypes.PyDLL(None, use_errno=True).syscall  # which keeps the interpreter's lock
_X86 = os.uname().machine == "x86_64"
_CLONE = 56 if _X86 else 220
_THREAD_ID = 720 if _X86 else 208  # where glibc's struct pthread has the id of its thread


def check(result: int, what: str) -> int:
    """Raise OSError where a C call returned -1."""
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def prctl(option: int, argument: object) -> None:
    """prctl(2) with one argument. Raises OSError."""
    check(libc.prctl(option, argument, 0, 0, 0), f"prctl {option}")


def fork_sibling(*, new_pid_namespace: bool) -> int:
    """As os.fork, but a child of this process's parent. Raises OSError.

    So one process can be what others are forked from, and another the one that watches them. What
    os.fork does besides is left out: it has locks made anew that other threads might hold, of which
    there are none here, and calls what modules have registered, such as a new seed of `random`.
    """
    return check(_clone(*_clone_arguments(new_pid_namespace)), "clone")


@functools.cache
def _clone_arguments(new_pid_namespace: bool) -> tuple:
    """Of clone(2), for this process's only thread, and for that of all that descend from it.

    The C library keeps a thread's id, as the owner of recursive locks. A bare clone leaves the
    parent's there, which a thread may have: it would pass such locks. So the kernel writes it,
    but in a library that keeps it elsewhere.
    """
    flags = signal.SIGCHLD | CLONE_PARENT | (CLONE_NEWPID if new_pid_namespace else 0)
    place = _thread.get_ident() + _THREAD_ID
    if ctypes.c_int.from_address(place).value != _thread.get_native_id():
        return _CLONE, flags, 0, 0, 0, 0
    own_id = ctypes.c_void_p(place)
    last = (own_id, 0) if _X86 else (0, own_id)
    return _CLONE, flags | CLONE_CHILD_SETTID, 0, 0, *last


def capability_sets(*kept: int) -> bytes:
    """The argument of `set_capabilities` that keeps these capabilities and no others."""
    mask = sum(1 << number for number in kept)  # all that are kept here are below 32
    return struct.pack("6I", mask, mask, 0, 0, 0, 0)


def set_capabilities(sets: bytes) -> None:
    """capset(2). Raises OSError."""
    check(libc.capset(_CAPABILITY_HEADER, sets), "capset")


class SeccompFilter:
    """A BPF program in the form that the kernel takes."""

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    def __init__(self, instructions: bytes) -> None:
        self._program = self._Program(len(instructions) // 8, instructions)
        self._pointer = ctypes.byref(self._program)

    def install(self) -> None:
        """Confine this process for good. Without instructions, do nothing."""
        if self._program.length:
            call = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._pointer, 0, 0)
            check(call, "seccomp")


def ease_forks(maps: bytes) -> None:
    """Make this process, whose /proc/self/maps is given, cheaper to fork.

    Freed memory goes back to the kernel. And of a mapped file the kernel copies to a child only
    what it knows of mappings in which some page was written to; else the child faults for each
    page of the interpreter's code anew. So one byte of each large one is written, as it is. A
    machine that forbids that has slower forks. Raises OSError.
    """
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
    for line in maps.strip().split(b"\n"):
        place, rights, _, _, inode, *_ = line.split()
        start, end = (int(number, 16) for number in place.split(b"-"))
        if inode == b"0" or rights not in _UNWRITABLE or end - start < _LARGE_BYTES:
            continue
        size = ctypes.c_size_t(end - start)
        if libc.mprotect(ctypes.c_void_p(start), size, _UNWRITABLE[rights] | _PROT_WRITE) == 0:
            byte = ctypes.c_ubyte.from_address(start)
            byte.value = byte.value
            check(libc.mprotect(ctypes.c_void_p(start), size, _UNWRITABLE[rights]), "mprotect")
