"""Confinement: namespaces and a root folder, or Landlock; filters, users, and programs' folders.

With namespaces, the calling process leaves the host's user, mount, PID, network, IPC and UTS
namespaces. Its root folder then holds read-only views of the Python runtime, the files of a test's
standard streams, and nothing else. A container has that from its engine.

Where user namespaces are refused, Landlock limits file access to the Python runtime. It is weaker:
names and attributes of files stay visible, and before Linux 6.12 it does not stop signals (the
system-call filter does).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import struct

from envs.sandbox.inside.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    SeccompFilter,
    capability_sets,
    check,
    libc,
    set_capabilities,
)

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _NOATIME = 1, 2, 4, 8, 32, 1024  # MS_*
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_STAGING = "/tmp"  # where the new root is built; any folder will do, since it is only mounted over
# Of the server: KILL, SETGID, SETUID, and SYS_ADMIN for PID namespaces. Tests keep none.
KEPT_CAPABILITIES = capability_sets(5, 6, 7, 21)
_NO_CAPABILITIES = capability_sets()
NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
_FIRST_UNUSED_USER = 1_000_000_000
MAX_TASKS = 256  # of the user of test processes
_OTHER_TASKS = 512  # that a user may start beside the sandbox, where tasks count per user

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
PROGRAM_NAME = "main.py"
_MEMORY, _FOLDER_PREFIX = "/dev/shm", "spo-bench-"  # of such folders under Landlock

# Landlock; its system calls have the same numbers on all machines.
CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_CHANGE = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8  # remove folders and files, make them
_MOVE = 1 << 13  # from one folder to another (ABI 2)
_HANDLED_FS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_HANDLED_NET, _SCOPED = 0b11, 0b11  # TCP bind and connect (ABI 4); abstract sockets, signals (6)


class Confinement:
    """What holds a test process, as the server and the processes that it starts know it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        # The user of test processes; None: the worker's own.
        self.user: int | None = settings.get("user")
        # A fresh PID namespace per test; only inside of one may all other processes be ended.
        self.pid_namespace: bool = settings.get("pid_namespace", False)
        self.owns_namespace = os.getpid() == 1
        self.max_tasks: int | None = settings.get("max_tasks", MAX_TASKS)  # None: not limited
        self.own_pids = {os.getpid()}  # processes that belong to no test
        # Each is a pair: for a program without a folder, and for one with.
        filters = (settings.get("seccomp", ""), settings.get("seccomp_files", ""))
        self.seccomp = tuple(SeccompFilter(bytes.fromhex(text)) for text in filters)
        self.landlock: tuple[LandlockRuleset, LandlockRuleset] | None = None
        self.folder: MountedFolder | LastingFolder | None = None  # for programs that use files

    def become_test_user(self) -> None:
        """Become the user that runs test processes, without any capability."""
        if self.user is None:
            set_capabilities(_NO_CAPABILITIES)
        else:  # leaving root clears them
            os.setgroups([])
            os.setresgid(self.user, self.user, self.user)
            os.setresuid(self.user, self.user, self.user)


def unused_user() -> int:
    """Return a user id that no other process on the host has: RLIMIT_NPROC counts by user."""
    return _FIRST_UNUSED_USER + os.getpid()


def test_identity(readable: list[str]) -> dict[str, int]:
    """Return settings that make test processes another user, if that user may read the runtime.

    Where they have to be this user, all that it runs counts towards RLIMIT_NPROC.
    """
    if os.getuid() == 0 and all(map(_open_to_all, readable)):
        return {"user": unused_user()}
    tasks = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has just ended
            if os.stat(f"/proc/{process}").st_uid == os.getuid():
                tasks += len(os.listdir(f"/proc/{process}/task"))
    return {"max_tasks": MAX_TASKS + _OTHER_TASKS + tasks}


def _open_to_all(path: str) -> bool:
    """Return whether any user may read this file or folder."""
    if not os.stat(path).st_mode & stat.S_IROTH:
        return False
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True


# ---- namespaces ----


def enter_namespaces() -> int | None:
    """Leave the host's namespaces; the new PID namespace begins with the next fork.

    Returns the inner user id for test processes, or None where there is one user only. An ordinary
    user may map only itself; root may also map a user that nobody else has. Raises OSError.
    """
    user, group = os.getuid(), os.getgid()
    map_both = _user_mapper(unused_user()) if user == 0 else None
    check(libc.unshare(NAMESPACES), "user namespaces are refused")
    if map_both is not None and map_both():
        return 1
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {user} 1\n")
    _write("/proc/self/gid_map", f"0 {group} 1\n")
    return None


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _user_mapper(second_user: int) -> Callable[[], bool]:
    """Return what maps both users once this process left its user namespace; False if refused.

    A child does it, which stays in the old namespace: only from there can two users be mapped.
    """
    read, write = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        try:
            for table in ("uid_map", "gid_map"):
                _write(f"/proc/{parent}/{table}", f"0 0 1\n1 {second_user} 1\n")
        except OSError:
            os._exit(1)
        os._exit(0)
    os.close(read)

    def map_both() -> bool:
        os.close(write)
        return os.waitpid(pid, 0)[1] == 0

    return map_both


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


# ---- the folder of a program that uses files ----

# It holds the program's own main.py and what it writes, for one test of a program whose text names
# such a use; all of it is gone before the next test. Its files are memory that no limit on a
# process counts, so their number and size are limited: by the mount, or under Landlock by the
# server, which looks from time to time.

# One of these occurs in every program that reads its own text, looks around or writes files. Of
# `open`, neither a descriptor of the standard streams nor a device needs a folder. Words are found
# faster than alternatives of an expression.
_WORDS = (
    b"glob import",
    *b"__file__ FileIO FileHandler filename tempfile mkstemp mkdir makedirs write_text".split(),
    *b"write_bytes touch( .save tofile shelve dbm gzip bz2 lzma zipfile tarfile listdir".split(),
    *b"scandir iterdir glob.glob .walk( getcwd".split(),
)
_OPENING = re.compile(rb"open(?!\s*+\(\s*+(?:[012]\b|['\"]/dev/|['\"]/proc/))")
_ALL, _OWNER, _SERVER = 0o777, 0o700, 0o755
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WATCH_FOLDER = _OPEN_FOLDER | os.O_NOATIME  # a program must not see when it is looked at


def uses_files(source: bytes) -> bool:
    """Return whether a program may need a folder."""
    for word in _WORDS:  # faster than any(): most programs have none, and each is searched for all
        if word in source:
            return True
    return _OPENING.search(source) is not None


class MountedFolder:
    """A folder that is mounted anew for each test."""

    path, is_watched = FOLDER, False

    def fill(self, source: bytes) -> None:
        """Cover FOLDER by a new one, in which every user may write, with the program's text."""
        flags = _NOSUID | _NODEV | _NOEXEC
        _mount("sandbox", FOLDER, "tmpfs", flags, f"mode=777,{FOLDER_OPTIONS}")
        folder = os.open(FOLDER, _OPEN_FOLDER)
        _write_program(folder, source)
        os.close(folder)

    def clear(self, remove: Callable[[], object]) -> None:
        """Drop the mount, and all that it holds."""
        check(libc.umount2(FOLDER.encode(), _MNT_DETACH), "umount of a folder")


class LastingFolder:
    """A folder that lasts, and is open to programs for one test at a time.

    A container may mount nothing; its engine has limited the folder. Under Landlock nothing has.
    """

    def __init__(self, path: str, *, is_watched: bool) -> None:
        self.path, self.is_watched = path, is_watched
        self._folder = os.open(path, _OPEN_FOLDER)
        self._device = os.fstat(self._folder).st_dev

    def fill(self, source: bytes) -> None:
        """Write the program's text into the folder, and open it to programs."""
        _write_program(self._folder, source)
        os.fchmod(self._folder, _OWNER if self.is_watched else _ALL)
        if self.is_watched:  # a container's mount keeps no time of reading
            os.utime(self._folder)

    def clear(self, remove: Callable[[], object]) -> None:
        """Empty the folder. `remove` calls `remove_contents` as the user who made the files."""
        if os.listdir(self._folder) != [PROGRAM_NAME] or _is_folder(PROGRAM_NAME, self._folder):
            remove()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(PROGRAM_NAME, dir_fd=self._folder)
        if os.listdir(self._folder):
            os._exit(1)  # a new worker has a new folder
        os.fchmod(self._folder, _OWNER if self.is_watched else _SERVER)

    def is_overfull(self, pid: int | None) -> bool:
        """Return whether the files of a process, or those it left, are too many or too large.

        Files that have lost their names are found by its descriptors. Those that only a mapping
        holds count towards its address space. Raises OSError at what cannot be seen.
        """
        found = _sizes(self._folder)
        if pid is not None:
            found |= _nameless_sizes(pid, self._device)
        return len(found) > FOLDER_FILES or sum(found.values()) > FOLDER_MB << 20


def make_folder(user: int | None) -> str | None:
    """Make a folder in memory, which belongs to the user of test processes; None without a place.

    Those whose guards were killed are removed.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(_MEMORY):
            owner = name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
            if name.startswith(_FOLDER_PREFIX) and not os.path.exists(f"/proc/{owner}"):
                remove_folder(f"{_MEMORY}/{name}")
        path = f"{_MEMORY}/{_FOLDER_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        os.mkdir(path, 0o700)
        if user is not None:
            os.chown(path, user, user)
        return path
    return None


def remove_folder(path: str) -> None:
    """Remove a folder and all in it, if this user may."""
    with contextlib.suppress(OSError):
        remove_contents(path)
        os.rmdir(path)


def remove_contents(path: str) -> None:
    """Remove all in a folder, whatever its depth and modes, as the user who made it."""
    folder = os.open(path, _OPEN_FOLDER)
    number = 0
    while names := os.listdir(folder):
        for name in names:
            if not _is_folder(name, folder):
                os.unlink(name, dir_fd=folder)
                continue
            os.chmod(name, _OWNER, dir_fd=folder)
            inner = os.open(name, _OPEN_FOLDER, dir_fd=folder)
            for child in os.listdir(inner):
                if not _is_folder(child, inner):
                    os.unlink(child, dir_fd=inner)
                    continue
                # It moves up: a path down to it may be longer than the kernel takes.
                os.chmod(child, _OWNER, dir_fd=inner)
                number += 1
                while (target := f"moved-{number}") in names:
                    number += 1
                os.rename(child, target, src_dir_fd=inner, dst_dir_fd=folder)
            os.close(inner)
            os.rmdir(name, dir_fd=folder)
    os.close(folder)


def _write_program(folder: int, source: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(PROGRAM_NAME, flags, 0o666, dir_fd=folder), "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(source)


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _sizes(folder: int) -> dict[int, int]:
    """Return inode → bytes of the files and folders in a folder, FOLDER_FILES of them and one more.

    It goes by descriptors, because a path may be longer than the kernel takes. Raises OSError at
    what is hidden, or has moved meanwhile.
    """
    found: dict[int, int] = {}
    with contextlib.ExitStack() as opened:

        def look_into(name: str, parent: int) -> int:
            inner = os.open(name, _WATCH_FOLDER, dir_fd=parent)
            opened.callback(os.close, inner)
            return inner

        folders = [look_into(".", folder)]
        for inner in folders:  # which grow meanwhile
            for name in os.listdir(inner):
                status = os.stat(name, dir_fd=inner, follow_symlinks=False)
                found[status.st_ino] = status.st_blocks << 9
                if len(found) > FOLDER_FILES:
                    return found
                if stat.S_ISDIR(status.st_mode):
                    folders.append(look_into(name, inner))
    return found


def _nameless_sizes(pid: int, device: int) -> dict[int, int]:
    """Return inode → bytes of the files on a device that a process has open and that lost names.

    Each thread may have descriptors of its own. Raises OSError at one that is closed meanwhile.
    """
    found: dict[int, int] = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        descriptors = f"/proc/{pid}/task/{thread}/fd"
        for number in os.listdir(descriptors):
            status = os.stat(f"{descriptors}/{number}")
            if status.st_dev == device and status.st_nlink == 0:
                found[status.st_ino] = status.st_blocks << 9
    return found
