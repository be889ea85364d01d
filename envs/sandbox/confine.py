"""Builds the embedded cage around the fork server, without root and without an engine.

Runs as a program of its own: it enters new user, mount, PID, network, IPC and UTS namespaces, gives
the server a root folder that holds the Python runtime read-only and nothing else, and starts
`worker.py` there as PID 1. The first process stays outside as a guard: when the host goes, it ends
the server, and with PID 1 everything in the cage.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import select
import signal
import struct
import sys
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_KEPT_CAPABILITIES = (5, 6, 7, 21)  # KILL, SETGID, SETUID, SYS_ADMIN (for PID namespaces)
_STAGE = "/tmp"  # where the new root is put together; any folder will do, it is covered, not used

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")


def _load_worker():
    path = Path(__file__).with_name("worker.py")
    spec = importlib.util.spec_from_file_location("worker", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["worker"] = module
    spec.loader.exec_module(module)
    return module


# ---- users and namespaces ----


def enter_namespaces() -> int | None:
    """Leave the host's namespaces; the new PID namespace begins with the next fork.

    Returns the inner user that test processes should take, or None where there is one user only:
    an ordinary user may map nobody but himself, root may map a user that nobody else is.
    """
    user, group = os.getuid(), os.getgid()
    mapper = _Mapper(1_000_000_000 + os.getpid()) if user == 0 else None
    spaces = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
    _check(_libc.unshare(_CLONE_NEWUSER | spaces), "user namespaces are refused")
    if mapper and mapper.map_both():
        return 1
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1\n")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1\n")
    return None


class _Mapper:
    """A child that stays in the old namespace, where alone two users may be mapped."""

    def __init__(self, other: int) -> None:
        read, self.write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.write)
            os.read(read, 1)
            os._exit(self._write_maps(os.getppid(), f"0 0 1\n1 {other} 1\n"))

    @staticmethod
    def _write_maps(pid: int, table: str) -> int:
        try:
            Path(f"/proc/{pid}/uid_map").write_text(table)
            Path(f"/proc/{pid}/gid_map").write_text(table)
        except OSError:
            return 1
        return 0

    def map_both(self) -> bool:
        os.write(self.write, b".")
        os.close(self.write)
        return os.waitpid(self.pid, 0)[1] == 0


def keep_capabilities(numbers: tuple[int, ...]) -> None:
    """Give up all capabilities but these."""
    mask = sum(1 << number for number in numbers)
    data = struct.pack("6I", mask, mask, 0, 0, 0, 0)
    _check(_libc.capset(struct.pack("Ii", 0x20080522, 0), data), "capset")


# ---- the root folder ----


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    result = _libc.mount(*texts, ctypes.c_ulong(flags), data.encode() if data else None)
    _check(result, f"mount {target}")


def change_root(binds: list[list[str]]) -> None:
    """Make a root folder of read-only views: `binds` lists (path outside, path inside)."""
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    sources = [os.open(source, os.O_PATH) for source, _ in binds]
    _mount("sandbox", _STAGE, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,nr_inodes=4k,mode=755")
    for source, (_, target) in zip(sources, binds, strict=True):
        _bind(source, _STAGE + target)
        os.close(source)
    os.chdir(_STAGE)
    _mount("sandbox", _STAGE, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def _bind(source: int, target: str) -> None:
    """Show an open file or folder read-only at `target`."""
    path = f"/proc/self/fd/{source}"
    if os.path.isdir(path):
        os.makedirs(target, mode=0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, None, _MS_BIND | _MS_REC)
    # Flags that the source already has are locked in a user namespace and must be given again.
    locked = os.statvfs(target).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount(path, target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | locked)


# ---- the two processes ----


def serve_in_namespaces(config: dict) -> None:
    """Start the server in its cage and guard it. Never returns."""
    worker = _load_worker()
    config["worker"]["uid"] = config["worker"]["gid"] = enter_namespaces()
    config["worker"]["pid_namespace"] = True
    server_pid = os.fork()
    if server_pid:
        guard(server_pid)
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
    os.umask(0o022)
    _check(_libc.sethostname(b"sandbox", 7), "sethostname")
    # The server opens what it needs of /proc before the host's files go out of sight.
    server = worker.Server(config["worker"])
    change_root(config["binds"])
    keep_capabilities(_KEPT_CAPABILITIES)
    server.serve()


def guard(server_pid: int) -> None:
    """Wait until the server ends or the host hangs up; leave nothing. Never returns."""
    poll = select.poll()
    poll.register(os.pidfd_open(server_pid), select.POLLIN)
    poll.register(0, 0)  # POLLHUP alone: what the host says is not for this process
    poll.poll()
    os.kill(server_pid, signal.SIGKILL)
    _, status = os.waitpid(server_pid, 0)
    os._exit(0 if status == 0 else 1)


def main() -> None:
    config = json.loads(sys.argv[-1])
    _load_worker().grow_stack()
    serve_in_namespaces(config)


if __name__ == "__main__":
    main()
