"""The system-call filter of a test process, as a BPF program (seccomp(2), filter mode).

It is an allowlist of the calls that a program needs to compute, to read its files, to start threads
and to run an event loop. All others fail with EPERM: processes, exec, sockets (except a connected
pair), signals to others, mounts, namespaces, ptrace, io_uring, System V IPC, keys, memfd_create. A
program that has a folder of its own may change files there. The host builds the filter; `inside/`
only installs it.

`system_calls.csv` lists the calls with their numbers, from the kernel's unistd headers (aarch64
never had the older ones), and their use: by any `program`, by one that changes `files`, by a
program with some arguments only (`checked`), or by the fork `server` or a container's `runtime`,
which the engine's filter of a container needs beyond these.
"""

from __future__ import annotations

import csv
import errno
import functools
import json
import platform
import struct
from pathlib import Path
from typing import Literal

from envs.sandbox.inside.kernel import OWN_PID

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_ALU | …, BPF_RET | BPF_K
_JUMP, _JUMP_EQUAL, _JUMP_GREATER_EQUAL = 0x05, 0x15, 0x35  # BPF_JMP with BPF_JA, BPF_JEQ, BPF_JGE
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data (little-endian machines)
_ANY = 0xFFFFFFFF  # all bits

_THREAD = 0x10100  # CLONE_VM, CLONE_THREAD
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWNS … CLONE_NEWNET, CLONE_NEWTIME
_ACCESS, _CREATE, _TRUNCATE = 0o3, 0o100, 0o1000  # O_ACCMODE, O_CREAT, O_TRUNC
_PRCTLS = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS … FIOCLEX: never a device's
_FCNTLS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD … F_SETFL, F_DUPFD_CLOEXEC
_AF_UNIX, _SOCK_STREAM = 1, 1
_SOCK_FLAGS = 0o2004000  # SOCK_CLOEXEC, SOCK_NONBLOCK
_STOPS = (19, 22)  # SIGSTOP … SIGTTOU

Opening = Literal["any", "no truncation", "read only"]


@functools.cache
def _calls() -> list[dict[str, str]]:
    with Path(__file__).with_name("system_calls.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _fail(number: int) -> bytes:
    return _op(_RETURN, _FAIL | number)


def _argument(index: int) -> bytes:
    return _op(_LOAD, _ARGUMENTS + 8 * index)


def _one_of(index: int, values: tuple[int, ...], otherwise: int = errno.EPERM) -> bytes:
    """Allow the call if an argument's low 32 bits are among `values`."""
    body = _argument(index)
    for value in values:
        body += _op(_JUMP_EQUAL, value, 0, 1) + _op(_RETURN, _ALLOW)
    return body + _fail(otherwise)


def _if_all(*tests: tuple[float, int, int], otherwise: int = errno.EPERM) -> bytes:
    """Allow the call if all (argument, mask, value) have that value; n + .5: n's high 32 bits."""
    body = b""
    for left in range(len(tests), 0, -1):
        index, mask, value = tests[-left]
        body += _op(_LOAD, _ARGUMENTS + int(8 * index)) + _op(_AND, mask)
        body += _op(_JUMP_EQUAL, value, 0, 3 * (left - 1) + 1)
    return body + _op(_RETURN, _ALLOW) + _fail(otherwise)


def _to_itself(signal: int) -> bytes:
    """Allow a signal to this process; argument `signal` has its number.

    A process that stops itself would only wait for its limit of wall time.
    """
    return b"".join(
        (
            _argument(0),
            _op(_JUMP_EQUAL, OWN_PID, 0, 4),
            _argument(signal),
            _op(_JUMP_GREATER_EQUAL, _STOPS[1] + 1, 1, 0),
            _op(_JUMP_GREATER_EQUAL, _STOPS[0], 1, 0),
            _op(_RETURN, _ALLOW),
            _fail(errno.EPERM),
        )
    )


def _open(flags: int, opening: Opening) -> bytes:
    """Allow an open that neither writes nor creates, or one that does not empty a file it reads."""
    if opening == "read only":
        return _if_all((flags, _ACCESS | _CREATE | _TRUNCATE, 0), otherwise=errno.EROFS)
    mask = _argument(flags) + _op(_AND, _ACCESS | _TRUNCATE)
    return mask + _op(_JUMP_EQUAL, _TRUNCATE, 0, 1) + _fail(errno.EROFS) + _op(_RETURN, _ALLOW)


_CHECKED = {
    # threads of this process: no new process, no new namespace
    "clone": _if_all((0, _NEW_NAMESPACES, 0), (0, _THREAD, _THREAD)),
    # glibc falls back to clone on ENOSYS alone, and the flags of clone3 cannot be read here
    "clone3": _fail(errno.ENOSYS),
    "prctl": _one_of(0, _PRCTLS),
    "ioctl": _one_of(1, _IOCTLS, errno.ENOTTY),
    "fcntl": _one_of(1, _FCNTLS),
    # two connected streams of this process, by which event loops wake, and no address
    "socketpair": _if_all((0, _ANY, _AF_UNIX), (1, _ANY & ~_SOCK_FLAGS, _SOCK_STREAM)),
    "sendto": _if_all((4, _ANY, 0), (4.5, _ANY, 0)),
    "kill": _to_itself(1),
    "tgkill": _to_itself(2),
    # of the calling process, which has the number 0
    "prlimit64": _if_all((0, _ANY, 0)),
    "sched_setaffinity": _if_all((0, _ANY, 0)),
    "getpriority": _if_all((0, _ANY, 0), (1, _ANY, 0)),
    "setpriority": _if_all((0, _ANY, 0), (1, _ANY, 0)),
}


def _search(rules: list[tuple[int, bytes]]) -> bytes:
    """Return a binary search by call number; `rules` are (first number, body), ascending.

    The kernel runs the filter for every call number whenever a process installs it. So a search
    instead of a list of comparisons saves a large part of the cost of a test.
    """
    if len(rules) == 1:
        return rules[0][1]
    middle = len(rules) // 2
    low, high = _search(rules[:middle]), _search(rules[middle:])
    skipped = len(low) // 8
    if skipped < 256:
        return _op(_JUMP_GREATER_EQUAL, rules[middle][0], skipped, 0) + low + high
    jump = _op(_JUMP_GREATER_EQUAL, rules[middle][0], 0, 1) + _op(_JUMP, skipped)
    return jump + low + high


def child_filter(
    machine: str | None = None, *, opening: Opening = "any", changing: bool = False
) -> bytes:
    """Return the filter for a machine type (`platform.machine()`); 8 bytes per instruction.

    Where programs see the host's files, `opening` says how they may open them: "read only", or "no
    truncation", which Landlock's first versions do not prevent. `changing` adds the calls that
    change files. Raises KeyError for a machine whose call numbers are not listed.
    """
    machine = machine or platform.machine()
    allow, refuse = _op(_RETURN, _ALLOW), _fail(errno.EPERM)
    bodies: dict[int, bytes] = {}
    for call in _calls():
        if call[machine] and (changing or call["use"] != "files"):
            bodies[int(call[machine])] = _CHECKED.get(call["call"], allow)
            if opening != "any" and call["call"] in ("open", "openat"):
                bodies[int(call[machine])] = _open(1 + (call["call"] == "openat"), opening)
    rules = [(0, bodies.get(0, refuse))]
    for number in range(1, max(bodies) + 2):  # beyond the last, x32 calls among them, all fail
        body = bodies.get(number, refuse)
        if body != rules[-1][1]:
            rules.append((number, body))
    start = [
        _op(_LOAD, _ARCH),
        _op(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
    ]
    return b"".join(start) + _search(rules)


def container_profile() -> str:
    """Return the workers' profile for the engine's API: JSON text, for every machine."""
    names = {call["call"] for call in _calls()} - {"clone", "clone3"}
    no_namespace = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    allow, refuse = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
    rules = [
        {"names": sorted(names), "action": allow},
        {"names": ["clone"], "args": [no_namespace], "action": allow},
        {"names": ["clone3"], "errnoRet": errno.ENOSYS, "action": refuse},
    ]
    return json.dumps({"defaultAction": refuse, "syscalls": rules})
