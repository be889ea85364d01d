"""The system-call filter, run by an interpreter of BPF, so for every machine."""

import errno
import struct

import pytest

from envs.sandbox.inside.kernel import OWN_PID
from envs.sandbox.seccomp import child_filter

ALLOW, KILL = "allow", "kill"
X86_64, AARCH64 = 0xC000003E, 0xC00000B7
ARCH = {"x86_64": X86_64, "aarch64": AARCH64}
# name=number on x86-64, on aarch64
CALLS = """
    read=0,63 open=2, mmap=9,222 ioctl=16,29 socket=41,198 sendto=44,206 sendmsg=46,211
    recvmsg=47,212 socketpair=53,199 clone=56,220 fork=57, execve=59,221 kill=62,129
    ptrace=101,117 prctl=157,167 mount=165,40 exit_group=231,94 tgkill=234,131
    renameat2=316,276 unlinkat=263,35 openat=257,56 unshare=272,97 prlimit64=302,261
    memfd_create=319,279 bpf=321,280 io_uring_setup=425,425 clone3=435,435 getpriority=140,141
    setpriority=141,140 sched_setaffinity=203,122
"""
NUMBERS = {
    machine: {
        name: int(numbers.split(",")[column])
        for name, numbers in (call.split("=") for call in CALLS.split())
        if numbers.split(",")[column]
    }
    for column, machine in enumerate(ARCH)
}
THREAD = 0x3D0F00  # the flags of glibc's pthread_create
FORK = 0x1200011


def run(program, arch, number, *arguments):
    """Return the filter's answer to a call: ALLOW, KILL or an errno."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    position = accumulator = 0
    for _ in range(100):
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, 8 * position)
        position += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        elif code == 0x05:
            position += value
        elif code == 0x06:
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(value, value & 0xFFFF)
        else:
            compare = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }
            position += if_true if compare[code] else if_false
    raise AssertionError("no answer after 100 instructions")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_is_allowed_and_what_is_not(machine):
    program, arch, number = child_filter(machine), ARCH[machine], NUMBERS[machine]

    def call(name, *arguments):
        return run(program, arch, number[name], *arguments)

    for name in ("read", "mmap", "exit_group", "openat"):
        assert call(name) == ALLOW, name
    refused = ("socket", "execve", "kill", "ptrace", "mount", "unshare", "memfd_create", "bpf")
    for name in (*refused, "io_uring_setup"):
        assert call(name) == errno.EPERM, name
    assert call("clone3") == errno.ENOSYS
    assert call("clone", THREAD) == ALLOW
    assert call("clone", FORK) == errno.EPERM
    assert call("clone", THREAD | 0x10000000) == errno.EPERM  # CLONE_NEWUSER
    assert call("prctl", 15) == ALLOW
    assert call("prctl", 1) == errno.EPERM
    assert call("prlimit64", 0) == ALLOW
    assert call("prlimit64", 1) == errno.EPERM
    for name in ("getpriority", "setpriority", "sched_setaffinity"):  # of itself alone
        assert (call(name, 0, 0), call(name, 1, 0)) == (ALLOW, errno.EPERM)
    assert call("setpriority", 0, 7) == errno.EPERM
    assert call("ioctl", 1, 0x5401) == ALLOW
    assert call("ioctl", 1, 0x5412) == errno.ENOTTY  # TIOCSTI
    assert call("openat", 0, 0, 0o101) == ALLOW
    assert call("socketpair", 1, 1 | 0o2004000) == ALLOW  # AF_UNIX, a stream
    for family, kind in ((1, 2), (1, 5), (2, 1), (16, 3)):  # datagrams, packets, other families
        assert call("socketpair", family, kind) == errno.EPERM
    assert call("sendto", 3, 0x7F00, 1, 0, 0, 0) == ALLOW
    for address in (1, 1 << 32, 0x7FFF_0000_0000):
        assert call("sendto", 3, 0x7F00, 1, 0, address, 110) == errno.EPERM
    for name in ("sendmsg", "recvmsg"):  # which the server needs, and no program
        assert call(name, 3, 0x7F00, 0) == errno.EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_read_only_filter_refuses_to_write(machine):
    program, arch = child_filter(machine, opening="read only"), ARCH[machine]
    number = NUMBERS[machine]["openat"]
    assert run(program, arch, number, 0, 0, 0o2000000) == ALLOW  # O_CLOEXEC
    for flags in (0o1, 0o2, 0o101, 0o1000):
        assert run(program, arch, number, 0, 0, flags) == errno.EROFS
    if machine == "x86_64":
        assert run(program, arch, NUMBERS[machine]["open"], 0, 0) == ALLOW
        assert run(program, arch, NUMBERS[machine]["open"], 0, 0o102) == errno.EROFS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_filter_without_truncation_lets_none_be_emptied_in_reading(machine):
    program, arch = child_filter(machine, opening="no truncation"), ARCH[machine]
    number = NUMBERS[machine]["openat"]
    for flags in (0, 0o2000000, 0o1, 0o1101, 0o1002):  # O_CLOEXEC; writing is Landlock's to judge
        assert run(program, arch, number, 0, 0, flags) == ALLOW
    for flags in (0o1000, 0o1100, 0o2001000):
        assert run(program, arch, number, 0, 0, flags) == errno.EROFS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_signals_reach_only_the_process_itself_and_do_not_stop_it(machine):
    program, arch, number = child_filter(machine), ARCH[machine], NUMBERS[machine]
    for signal in (0, 2, 9, 15, 18, 23, 64):
        assert run(program, arch, number["kill"], OWN_PID, signal) == ALLOW
        assert run(program, arch, number["tgkill"], OWN_PID, 7, signal) == ALLOW
        for pid in (0, 1, OWN_PID - 1, (1 << 32) - 1, (1 << 32) - OWN_PID):
            assert run(program, arch, number["kill"], pid, signal) == errno.EPERM
            assert run(program, arch, number["tgkill"], pid, OWN_PID, signal) == errno.EPERM
    for signal in (19, 20, 21, 22):
        assert run(program, arch, number["kill"], OWN_PID, signal) == errno.EPERM
        assert run(program, arch, number["tgkill"], OWN_PID, 7, signal) == errno.EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_only_a_program_with_a_folder_changes_files(machine):
    arch, number = ARCH[machine], NUMBERS[machine]
    for changing, answer in ((False, errno.EPERM), (True, ALLOW)):
        program = child_filter(machine, changing=changing)
        for name in ("renameat2", "unlinkat"):
            assert run(program, arch, number[name]) == answer


def test_other_tables_of_calls_are_out_of_reach():
    program = child_filter("x86_64")
    assert run(program, 0x40000003, 1) == KILL  # i386
    assert run(program, X86_64, 0x40000000) == errno.EPERM  # x32: read
    assert run(program, X86_64, -1) == errno.EPERM
    assert all(run(program, X86_64, number) == errno.EPERM for number in range(440, 1000))
