"""Linux calls that Python's standard library lacks (3.11), through ctypes."""

from __future__ import annotations

import _thread
import ctypes
import os
import platform
import resource
import signal
import struct
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x1000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2
STACK_BYTES = 256 << 20  # of the main thread: deep recursion through C needs it

_CAPABILITY_HEADER = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, oneself

libc = ctypes.CDLL(None, use_errno=True)
_clone = ctypes.PyDLL(None, use_errno=True).syscall  # which keeps the interpreter's lock
_X86 = platform.machine() == "x86_64"
_CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
_THREAD_ID = 720 if _X86 else 208  # where glibc's struct pthread has the id of its thread
_before_fork = ctypes.pythonapi.PyOS_BeforeFork
_after_in_child = ctypes.pythonapi.PyOS_AfterFork_Child
_after_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent


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

    So one process can be what others are forked from, and another the one that watches them.
    """
    flags = signal.SIGCHLD | CLONE_PARENT | (CLONE_NEWPID if new_pid_namespace else 0)
    _before_fork()
    own_id = ctypes.c_void_p(_place_of_thread_id())
    flags |= CLONE_CHILD_SETTID if own_id else 0
    pid = _clone(_CLONE, flags, 0, 0, *((own_id, 0) if _X86 else (0, own_id)))
    if pid == 0:
        _after_in_child()
    else:
        _after_in_parent()
    return check(pid, "clone")


def _place_of_thread_id() -> int:
    """Where the C library keeps the calling thread's id, as the owner of recursive locks.

    A bare clone leaves the parent's there, which a thread may have: it would pass such locks. 0 in
    a library that keeps it elsewhere.
    """
    place = _thread.get_ident() + _THREAD_ID
    return place if ctypes.c_int.from_address(place).value == _thread.get_native_id() else 0


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


def grow_stack() -> None:
    """Give the main thread a large stack; only a new process image can have one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        os.execv(sys.executable, sys.orig_argv)
