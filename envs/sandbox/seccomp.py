"""The system-call filter of a test process, as a BPF program (seccomp(2), filter mode).

It is an allowlist of the calls that a program needs to compute, to read its files, to start threads
and to run an event loop. All others fail with EPERM: processes, exec, sockets (except a connected
pair), signals to others, mounts, namespaces, ptrace, io_uring, System V IPC, keys, memfd_create. A
program that has a folder of its own may change files there (`FILE_CALLS`). The host builds the
filter; `inside/` only installs it.

A container also has the engine's filter. `container_profile` is the same list, and the calls that
the fork server needs beyond it.
"""

from __future__ import annotations

import errno
import json
import platform
import struct
from typing import Literal

from envs.sandbox.inside.kernel import OWN_PID

# System-call numbers, from the kernel's unistd headers. aarch64 never had the older calls.
_ALLOWED = {
    "x86_64": (
        "read=0 write=1 readv=19 writev=20 pread64=17 pwrite64=18 lseek=8 close=3",
        "close_range=436 dup=32 dup2=33 dup3=292 open=2 openat=257 stat=4 lstat=6 fstat=5",
        "newfstatat=262 statx=332 access=21 faccessat=269 faccessat2=439 readlink=89",
        "readlinkat=267 getdents=78 getdents64=217 getcwd=79 chdir=80 ftruncate=77 fsync=74",
        "fdatasync=75 mmap=9 munmap=11 mremap=25 mprotect=10 madvise=28 brk=12 rt_sigaction=13",
        "rt_sigprocmask=14 rt_sigreturn=15 sigaltstack=131 pause=34 restart_syscall=219",
        "rt_sigpending=127 rt_sigtimedwait=128",
        "futex=202 set_robust_list=273 rseq=334 set_tid_address=218 exit=60 exit_group=231",
        "sched_yield=24 arch_prctl=158 sched_getaffinity=204 getpid=39 getppid=110 gettid=186",
        "getuid=102 geteuid=107 getgid=104 getegid=108 umask=95 uname=63 sysinfo=99 getrusage=98",
        "times=100 getrlimit=97 setrlimit=160 time=201 gettimeofday=96 clock_gettime=228",
        "clock_getres=229 nanosleep=35 clock_nanosleep=230 alarm=37 getitimer=36 setitimer=38",
        "getrandom=318 poll=7 ppoll=271 select=23 pselect6=270 pipe=22 pipe2=293 wait4=61",
        "epoll_create1=291 epoll_ctl=233 epoll_wait=232 epoll_pwait=281 eventfd2=290",
        "getsockname=51 recvfrom=45",
    ),
    "aarch64": (
        "read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 lseek=62 close=57",
        "close_range=436 dup=23 dup3=24 openat=56 fstat=80 newfstatat=79 statx=291 faccessat=48",
        "faccessat2=439 readlinkat=78 getdents64=61 getcwd=17 chdir=49 ftruncate=46 fsync=82",
        "fdatasync=83 mmap=222 munmap=215 mremap=216 mprotect=226 madvise=233 brk=214",
        "rt_sigaction=134 rt_sigprocmask=135 rt_sigreturn=139 sigaltstack=132",
        "rt_sigpending=136 rt_sigtimedwait=137",
        "restart_syscall=128 futex=98 set_robust_list=99 rseq=293 set_tid_address=96 exit=93",
        "exit_group=94 sched_yield=124 sched_getaffinity=123 getpid=172 getppid=173 gettid=178",
        "getuid=174 geteuid=175 getgid=176 getegid=177 uname=160 sysinfo=179 getrusage=165",
        "times=153 getrlimit=163 setrlimit=164 gettimeofday=169 clock_gettime=113",
        "clock_getres=114 nanosleep=101 clock_nanosleep=115 getitimer=102 setitimer=103",
        "umask=166 getrandom=278 ppoll=73 pselect6=72 pipe2=59 wait4=260",
        "epoll_create1=20 epoll_ctl=21 epoll_pwait=22 eventfd2=19 getsockname=204 recvfrom=207",
    ),
}
# Calls that change files and folders, for programs that have a folder in which they may.
FILE_CALLS = {
    "x86_64": (
        "mkdir=83 mkdirat=258 rmdir=84 unlink=87 unlinkat=263 rename=82 renameat=264",
        "renameat2=316",
    ),
    "aarch64": ("mkdirat=34 unlinkat=35 renameat=38 renameat2=276",),
}
# Calls that are allowed with some arguments only: clone, clone3, prctl, prlimit64, ioctl, fcntl,
# socketpair, sendto, kill, tgkill.
_CHECKED = {
    "x86_64": (56, 435, 157, 302, 16, 72, 53, 44, 62, 234),
    "aarch64": (220, 435, 167, 261, 29, 25, 199, 206, 129, 131),
}
_CHECKED_NAMES = ("clone", "prctl", "prlimit64", "ioctl", "fcntl", "socketpair", "sendto")
# The fork server starts, limits, watches and ends test processes, and changes its root.
_SERVER_CALLS = (
    "chroot execve fchmod fchmodat kill pidfd_open pidfd_send_signal preadv preadv2 recvmsg",
    "sendmsg setgroups setresgid setresuid setsid tgkill",
)
# A container runtime makes these calls between installing the filter and starting the server.
_RUNTIME_CALLS = ("capget capset execveat fchdir fstatfs openat2 setgid setuid statfs",)
_OPENS = {"x86_64": {257: 2, 2: 1}, "aarch64": {56: 2}}  # openat, open: which argument has flags
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _JUMP, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _AND, _RETURN = (
    0x20,  # BPF_LD | BPF_W | BPF_ABS
    0x05,  # BPF_JMP | BPF_JA
    0x15,  # BPF_JMP | BPF_JEQ | BPF_K
    0x35,  # BPF_JMP | BPF_JGE | BPF_K
    0x45,  # BPF_JMP | BPF_JSET | BPF_K
    0x54,  # BPF_ALU | BPF_AND | BPF_K
    0x06,  # BPF_RET | BPF_K
)
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data (little-endian machines)

_CLONE_VM, _CLONE_THREAD = 0x100, 0x10000
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWNS … CLONE_NEWNET, CLONE_NEWTIME
_ACCESS, _CREATE, _TRUNCATE = 0o3, 0o100, 0o1000  # O_ACCMODE, O_CREAT, O_TRUNC
_WRITING = _ACCESS | _CREATE | _TRUNCATE
_PRCTLS = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS … FIOCLEX: never a device's
_AF_UNIX, _SOCK_STREAM = 1, 1
_SOCK_FLAGS = 0o2004000  # SOCK_CLOEXEC, SOCK_NONBLOCK
_STOPS = (19, 22)  # SIGSTOP … SIGTTOU
_FCNTLS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD … F_SETFL, F_DUPFD_CLOEXEC


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _fail(number: int) -> bytes:
    return _op(_RETURN, _FAIL | number)


def _argument(index: int) -> bytes:
    return _op(_LOAD, _ARGUMENTS + 8 * index)


def _one_of(index: int, values: tuple[int, ...], otherwise: int) -> bytes:
    """Allow the call if an argument's low 32 bits are among `values`."""
    body = _argument(index)
    for value in values:
        body += _op(_JUMP_EQUAL, value, 0, 1) + _op(_RETURN, _ALLOW)
    return body + _fail(otherwise)


def _thread_only() -> bytes:
    """Allow clone for threads of this process: no new process, no new namespace."""
    needed = _CLONE_VM | _CLONE_THREAD
    return b"".join(
        (
            _argument(0),
            _op(_JUMP_BITS, _NEW_NAMESPACES, 3, 0),
            _op(_AND, needed),
            _op(_JUMP_EQUAL, needed, 0, 1),
            _op(_RETURN, _ALLOW),
            _fail(errno.EPERM),
        )
    )


def _pipe_like_pair() -> bytes:
    """Allow socketpair for two connected streams of this process: event loops wake by them."""
    return b"".join(
        (
            _argument(0),
            _op(_JUMP_EQUAL, _AF_UNIX, 0, 4),
            _argument(1),
            _op(_AND, 0xFFFFFFFF & ~_SOCK_FLAGS),
            _op(_JUMP_EQUAL, _SOCK_STREAM, 0, 1),
            _op(_RETURN, _ALLOW),
            _fail(errno.EPERM),
        )
    )


def _to_no_address(index: int) -> bytes:
    """Allow sendto where the address, argument `index`, is NULL: to the other end of a pair."""
    low = _ARGUMENTS + 8 * index
    return b"".join(
        (
            _op(_LOAD, low),
            _op(_JUMP_EQUAL, 0, 0, 3),
            _op(_LOAD, low + 4),
            _op(_JUMP_EQUAL, 0, 0, 1),
            _op(_RETURN, _ALLOW),
            _fail(errno.EPERM),
        )
    )


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


def _search(rules: list[tuple[int, int]], bodies: list[bytes]) -> bytes:
    """Return a binary search by call number; `rules` are (first number, body index), ascending.

    The kernel runs the filter for every call number whenever a process installs it. So a search
    instead of a list of comparisons saves a large part of the cost of a test.
    """
    if len(rules) == 1:
        return bodies[rules[0][1]]
    middle = len(rules) // 2
    low, high = _search(rules[:middle], bodies), _search(rules[middle:], bodies)
    skipped = len(low) // 8
    if skipped < 256:
        return _op(_JUMP_GREATER_EQUAL, rules[middle][0], skipped, 0) + low + high
    jump = _op(_JUMP_GREATER_EQUAL, rules[middle][0], 0, 1) + _op(_JUMP, skipped)
    return jump + low + high


def _read_only(index: int) -> bytes:
    """Allow an open whose flags, argument `index`, neither write nor create."""
    return b"".join(
        (
            _argument(index),
            _op(_JUMP_BITS, _WRITING, 0, 1),
            _fail(errno.EROFS),
            _op(_RETURN, _ALLOW),
        )
    )


def _no_truncation(index: int) -> bytes:
    """Allow an open unless it empties a file that it only reads."""
    return b"".join(
        (
            _argument(index),
            _op(_AND, _ACCESS | _TRUNCATE),
            _op(_JUMP_EQUAL, _TRUNCATE, 0, 1),
            _fail(errno.EROFS),
            _op(_RETURN, _ALLOW),
        )
    )


Opening = Literal["any", "no truncation", "read only"]


def child_filter(
    machine: str | None = None, *, opening: Opening = "any", changing: bool = False
) -> bytes:
    """Return the filter for a machine type (`platform.machine()`); 8 bytes per instruction.

    Where programs see the host's files, `opening` says how they may open them: "read only", or "no
    truncation", which Landlock's first versions do not prevent. `changing` adds FILE_CALLS. Raises
    KeyError for a machine whose call numbers are not listed here.
    """
    machine = machine or platform.machine()
    bodies = [
        _fail(errno.EPERM),
        _op(_RETURN, _ALLOW),
        _thread_only(),
        # glibc falls back to clone on ENOSYS alone, and the flags of clone3 cannot be read here.
        _fail(errno.ENOSYS),
        _one_of(0, _PRCTLS, errno.EPERM),
        _one_of(0, (0,), errno.EPERM),
        _one_of(1, _IOCTLS, errno.ENOTTY),
        _one_of(1, _FCNTLS, errno.EPERM),
        _pipe_like_pair(),
        _to_no_address(4),
        _to_itself(1),
        _to_itself(2),
    ]
    lines = _ALLOWED[machine] + (FILE_CALLS[machine] if changing else ())
    body_of = {int(item.partition("=")[2]): 1 for item in " ".join(lines).split()}
    body_of |= {number: index for index, number in enumerate(_CHECKED[machine], start=2)}
    if opening != "any":
        check_flags = _read_only if opening == "read only" else _no_truncation
        for number, flags in _OPENS[machine].items():
            body_of[number] = len(bodies)
            bodies.append(check_flags(flags))
    rules = [(0, body_of.get(0, 0))]
    for number in range(1, max(body_of) + 2):  # beyond the last, x32 calls among them, all fail
        body = body_of.get(number, 0)
        if body != rules[-1][1]:
            rules.append((number, body))
    start = [
        _op(_LOAD, _ARCH),
        _op(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
    ]
    return b"".join(start) + _search(rules, bodies)


def container_profile() -> str:
    """Return the workers' profile for the engine's API: JSON text, for every machine."""
    calls = (*_ALLOWED.values(), *FILE_CALLS.values())
    programs = " ".join(line for lines in calls for line in lines).split()
    names = {item.partition("=")[0] for item in programs} | set(_CHECKED_NAMES) - {"clone"}
    names |= set(" ".join(_SERVER_CALLS + _RUNTIME_CALLS).split())
    no_namespace = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    allow, refuse = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
    rules = [
        {"names": sorted(names), "action": allow},
        {"names": ["clone"], "args": [no_namespace], "action": allow},
        # As in `child_filter`.
        {"names": ["clone3"], "errnoRet": errno.ENOSYS, "action": refuse},
    ]
    return json.dumps({"defaultAction": refuse, "syscalls": rules})
