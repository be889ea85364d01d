"""Namespaces and a root folder: the embedded cage, built without root and without an engine.

The calling process leaves the host's user, mount, PID, network, IPC and UTS namespaces. The server
then sees a root folder that holds read-only views of the Python runtime, the files of a test's
standard streams, and nothing else.
"""

from __future__ import annotations

import ctypes
import os

from envs.sandbox.inside.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    capability_sets,
    check,
    libc,
    set_capabilities,
)

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _NOATIME = 1, 2, 4, 8, 32, 1024  # MS_*
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_STAGE = "/tmp"  # where the new root is put together; any folder will do: it is covered, not used
_KEPT_CAPABILITIES = capability_sets(5, 6, 7, 21)  # KILL, SETGID, SETUID; SYS_ADMIN for PID spaces
NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
_FIRST_SPARE_USER = 1_000_000_000

# A root folder without /proc has the standard streams' files at places of their own. Only the
# server can name files there; there are as many inodes as the folder and its files need, one of
# them without a name: programs pass through it.
STDIO = "/stdio"
STREAMS = ("stdin", "stdout")
STDIO_OPTIONS = f"mode=755,nr_inodes={2 + len(STREAMS)}"
STREAM_LINKS = {f"/dev/{name}": f"{STDIO}/{name}" for name in STREAMS}
STREAM_LINKS |= {f"/dev/fd/{number}": f"{STDIO}/{name}" for number, name in enumerate(STREAMS)}
STREAM_LINKS |= dict.fromkeys(("/dev/stderr", "/dev/fd/2"), os.devnull)  # it is a pipe, unnamed


def spare_user() -> int:
    """A user id that no other process on the host has: RLIMIT_NPROC counts by user."""
    return _FIRST_SPARE_USER + os.getpid()


def enter_namespaces() -> int | None:
    """Leave the host's namespaces; the new PID namespace begins with the next fork.

    Returns the inner user that test processes should take, or None where there is one user only:
    an ordinary user may map nobody but himself, root may map one that nobody else is.
    """
    user, group = os.getuid(), os.getgid()
    mapper = _Mapper(spare_user()) if user == 0 else None
    check(libc.unshare(NAMESPACES), "user namespaces are refused")
    if mapper and mapper.map_both():
        return 1
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {user} 1\n")
    _write("/proc/self/gid_map", f"0 {group} 1\n")
    return None


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


class _Mapper:
    """A child that stays in the old namespace, from where alone two users may be mapped."""

    def __init__(self, other: int) -> None:
        read, self._write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write)
            os.read(read, 1)
            os._exit(self._map(os.getppid(), f"0 0 1\n1 {other} 1\n"))
        os.close(read)

    @staticmethod
    def _map(pid: int, table: str) -> int:
        try:
            _write(f"/proc/{pid}/uid_map", table)
            _write(f"/proc/{pid}/gid_map", table)
        except OSError:
            return 1
        return 0

    def map_both(self) -> bool:
        """Call after leaving the old namespace; False where the map was refused."""
        os.write(self._write, b".")
        os.close(self._write)
        return os.waitpid(self._pid, 0)[1] == 0


def change_root(binds: list[list[str]], hidden: list[str]) -> None:
    """Make a root folder of read-only views: `binds` lists (path outside, path inside).

    `hidden` lists folders inside that are covered by empty ones.
    """
    _mount("none", "/", None, _REC | _PRIVATE)
    sources = [os.open(source, os.O_PATH) for source, _ in binds]
    _mount("sandbox", _STAGE, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=4k,mode=755")
    for source, (_, target) in zip(sources, binds, strict=True):
        _bind(source, _STAGE + target)
        os.close(source)
    for folder in hidden:
        _mount("sandbox", _STAGE + folder, "tmpfs", _RDONLY | _NOSUID | _NODEV, "size=4k")
    os.mkdir(_STAGE + STDIO)
    still = _NOSUID | _NODEV | _NOEXEC | _NOATIME
    _mount("sandbox", _STAGE + STDIO, "tmpfs", still, STDIO_OPTIONS)
    for link, target in STREAM_LINKS.items():
        os.makedirs(os.path.dirname(_STAGE + link), exist_ok=True)
        os.symlink(target, _STAGE + link)
    os.chdir(_STAGE)
    _mount("sandbox", _STAGE, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    check(libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    check(libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    result = libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3])
    check(result, f"mount {target}")


def _bind(source: int, target: str) -> None:
    """Show an open file or folder read-only at `target`."""
    path = f"/proc/self/fd/{source}"
    if os.path.isdir(path):
        os.makedirs(target, mode=0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, None, _BIND | _REC)
    # Flags that the source already has are locked in a user namespace and must be given again.
    locked = os.statvfs(target).f_flag & (_NOSUID | _NODEV | _NOEXEC)
    _mount(path, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | locked)


def name_host() -> None:
    """Hide the host's name."""
    check(libc.sethostname(b"sandbox", 7), "sethostname")


def keep_few_capabilities() -> None:
    """Keep what starting test processes needs. They themselves keep none."""
    set_capabilities(_KEPT_CAPABILITIES)
