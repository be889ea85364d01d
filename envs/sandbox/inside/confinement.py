"""Confinement without root and without an engine: namespaces and a root folder, or Landlock.

With namespaces, the calling process leaves the host's user, mount, PID, network, IPC and UTS
namespaces. Its root folder then holds read-only views of the Python runtime, the files of a test's
standard streams, and nothing else.

Where user namespaces are refused, Landlock limits file access to the Python runtime. It is weaker:
names and attributes of files stay visible, and before Linux 6.12 it does not stop signals (the
system-call filter does).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

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
_STAGING = "/tmp"  # where the new root is built; any folder will do, since it is only mounted over
_KEPT_CAPABILITIES = capability_sets(5, 6, 7, 21)  # KILL, SETGID, SETUID; SYS_ADMIN for PID spaces
NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
_FIRST_UNUSED_USER = 1_000_000_000

# A root folder without /proc has files of its own for the standard streams. Only the server can
# name files there. There are exactly as many inodes as the folder and its files need; one of them
# has no name, and passes programs on.
STDIO = "/stdio"
STREAMS = ("stdin", "stdout")
STDIO_OPTIONS = f"mode=755,nr_inodes={2 + len(STREAMS)}"
STREAM_LINKS = {f"/dev/{name}": f"{STDIO}/{name}" for name in STREAMS}
STREAM_LINKS |= {
    f"{folder}/{number}": f"{STDIO}/{name}"
    for folder in ("/dev/fd", "/proc/self/fd")
    for number, name in enumerate(STREAMS)
}
# It is a pipe, unnamed.
STREAM_LINKS |= dict.fromkeys(("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"), os.devnull)
# The folder of a program that uses files; elsewhere it is empty and read-only. What it holds is
# memory that no limit on the process counts.
FOLDER = "/work"
FOLDER_FILES, FOLDER_MB = 256, 16
FOLDER_OPTIONS = f"size={FOLDER_MB}m,nr_inodes={FOLDER_FILES}"

# Landlock; its system calls have the same numbers on all machines.
CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_CHANGE = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8  # remove folders and files, make them
_MOVE = 1 << 13  # from one folder to another (ABI 2)
_HANDLED_FS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_HANDLED_NET, _SCOPED = 0b11, 0b11  # TCP bind and connect (ABI 4); abstract sockets, signals (6)


def unused_user() -> int:
    """Return a user id that no other process on the host has: RLIMIT_NPROC counts by user."""
    return _FIRST_UNUSED_USER + os.getpid()


# ---- namespaces ----


def enter_namespaces() -> int | None:
    """Leave the host's namespaces; the new PID namespace begins with the next fork.

    Returns the inner user id for test processes, or None where there is one user only. An ordinary
    user may map only itself; root may also map a user that nobody else has. Raises OSError.
    """
    user, group = os.getuid(), os.getgid()
    mapper = _UserMapper(unused_user()) if user == 0 else None
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


class _UserMapper:
    """A child that stays in the old user namespace: only from there can two users be mapped."""

    def __init__(self, second_user: int) -> None:
        read, self._write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write)
            os.read(read, 1)
            os._exit(self._map(os.getppid(), f"0 0 1\n1 {second_user} 1\n"))
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
        """Map both users once the caller left the old namespace; False if that is refused."""
        os.write(self._write, b".")
        os.close(self._write)
        return os.waitpid(self._pid, 0)[1] == 0


def change_root(binds: list[list[str]], hidden: list[str]) -> None:
    """Make a root folder of read-only views: `binds` lists (path outside, path inside).

    `hidden` lists folders inside that are covered by empty ones. Raises OSError.
    """
    _mount("none", "/", None, _REC | _PRIVATE)
    sources = [os.open(source, os.O_PATH) for source, _ in binds]
    _mount("sandbox", _STAGING, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=4k,mode=755")
    for source, (_, target) in zip(sources, binds, strict=True):
        _bind(source, _STAGING + target)
        os.close(source)
    for folder in hidden:
        _mount("sandbox", _STAGING + folder, "tmpfs", _RDONLY | _NOSUID | _NODEV, "size=4k")
    os.mkdir(_STAGING + FOLDER)
    os.mkdir(_STAGING + STDIO)
    stdio_flags = _NOSUID | _NODEV | _NOEXEC | _NOATIME
    _mount("sandbox", _STAGING + STDIO, "tmpfs", stdio_flags, STDIO_OPTIONS)
    for link, target in STREAM_LINKS.items():
        os.makedirs(os.path.dirname(_STAGING + link), exist_ok=True)
        os.symlink(target, _STAGING + link)
    os.chdir(_STAGING)
    _mount("sandbox", _STAGING, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    check(libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    check(libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    result = libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3])
    check(result, f"mount {target}")


def mount_folder() -> None:
    """Cover FOLDER by a new one, in which every user may write. Raises OSError."""
    _mount("sandbox", FOLDER, "tmpfs", _NOSUID | _NODEV | _NOEXEC, f"mode=777,{FOLDER_OPTIONS}")


def unmount_folder() -> None:
    """Drop what `mount_folder` has made, and all that it holds. Raises OSError."""
    check(libc.umount2(FOLDER.encode(), _MNT_DETACH), "umount of a folder")


def _bind(source: int, target: str) -> None:
    """Show an open file or folder read-only at `target`."""
    path = f"/proc/self/fd/{source}"
    if os.path.isdir(path):
        os.makedirs(target, mode=0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, None, _BIND | _REC)
    # Flags of the source are locked in a user namespace, and have to be repeated.
    locked = os.statvfs(target).f_flag & (_NOSUID | _NODEV | _NOEXEC)
    _mount(path, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | locked)


def hide_host_name() -> None:
    """Give the new UTS namespace a name of its own. Raises OSError."""
    check(libc.sethostname(b"sandbox", 7), "sethostname")


def keep_few_capabilities() -> None:
    """Keep the capabilities that starting test processes needs; those keep none themselves."""
    set_capabilities(_KEPT_CAPABILITIES)


# ---- Landlock ----


class LandlockRuleset:
    """The rights of a test process: read below some paths, and write to devices among them.

    In a `folder` it may do more. Raises OSError where the kernel has no Landlock.
    """

    def __init__(self, readable: list[str], folder: str | None = None) -> None:
        abi = check(libc.syscall(CREATE_RULESET, None, 0, 1), "Landlock")
        handled = _HANDLED_FS[max(version for version in _HANDLED_FS if version <= abi)]
        fields = [handled, _HANDLED_NET if abi >= 4 else 0, _SCOPED if abi >= 6 else 0]
        fields = fields[: 3 if abi >= 6 else 2 if abi >= 4 else 1]
        attributes = struct.pack(f"{len(fields)}Q", *fields)
        created = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
        self._ruleset = check(created, "Landlock ruleset")
        write = _WRITE_FILE | (_TRUNCATE if abi >= 3 else 0)
        if folder is not None:
            change = _CHANGE | (_MOVE if abi >= 2 else 0)
            self._allow(folder, _READ_FILE | _READ_DIR | write | change)
        for path in readable:
            self._allow(path, _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0))
            if stat.S_ISCHR(os.stat(path).st_mode):  # null and similar devices keep nothing
                self._allow(path, write)

    def _allow(self, path: str, rights: int) -> None:
        parent = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights, parent)
        beneath = 1  # LANDLOCK_RULE_PATH_BENEATH
        check(libc.syscall(_ADD_RULE, self._ruleset, beneath, rule, 0), f"Landlock rule {path}")
        os.close(parent)

    def install(self) -> None:
        """Confine this process irrevocably. Raises OSError."""
        check(libc.syscall(_RESTRICT_SELF, self._ruleset, 0), "Landlock")
