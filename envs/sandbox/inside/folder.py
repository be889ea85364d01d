"""The folder of a program that uses files: its own main.py, and what it writes there.

It exists for one test of a program whose text names such a use, and all that the test left is gone
before the next. With namespaces it is a new mount, so nothing of an earlier one can be seen. A
container may mount nothing: there, and under Landlock, the folder stays and is emptied. Its files
are memory that no limit on a process counts, so their number and size are limited: by the mount,
or under Landlock by the server, which looks from time to time.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable

from envs.sandbox.inside.confinement import (
    FOLDER,
    FOLDER_FILES,
    FOLDER_MB,
    mount_folder,
    unmount_folder,
)

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
PROGRAM_NAME = "main.py"
_ALL, _OWNER, _SERVER = 0o777, 0o700, 0o755
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def uses_files(source: bytes) -> bool:
    """Return whether a program may need a folder."""
    for word in _WORDS:  # faster than any(): most programs have none, and each is searched for all
        if word in source:
            return True
    return _OPENING.search(source) is not None


class MountedFolder:
    """A folder that is mounted anew for each test."""

    path = FOLDER

    def fill(self, source: bytes) -> None:
        """Make the folder, with the program's text in it."""
        mount_folder()
        folder = os.open(FOLDER, _OPEN_FOLDER)
        _write(folder, source)
        os.close(folder)

    def clear(self, remove: Callable[[], object]) -> None:
        """Remove the folder."""
        unmount_folder()

    def is_overfull(self, pid: int) -> bool:
        """Return False: the mount is limited."""
        return False


class LastingFolder:
    """A folder that lasts, and is open to programs for one test at a time."""

    def __init__(self, path: str, *, limited: bool) -> None:
        self.path, self._limited = path, limited
        self._folder = os.open(path, _OPEN_FOLDER)
        self._device = os.fstat(self._folder).st_dev
        self._mode = _ALL if limited else _OWNER

    def fill(self, source: bytes) -> None:
        """Write the program's text into the folder, and open it to programs."""
        _write(self._folder, source)
        os.fchmod(self._folder, self._mode)
        if not self._limited:  # the mount keeps no time of reading
            os.utime(self._folder)

    def clear(self, remove: Callable[[], object]) -> None:
        """Empty the folder. `remove` calls `remove_contents` as the user who made the files."""
        if os.listdir(self._folder) != [PROGRAM_NAME] or _is_folder(PROGRAM_NAME, self._folder):
            remove()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(PROGRAM_NAME, dir_fd=self._folder)
        if os.listdir(self._folder):
            os._exit(1)  # a new worker has a new folder
        os.fchmod(self._folder, _SERVER if self._limited else _OWNER)

    def is_overfull(self, pid: int) -> bool:
        """Return whether the files of a process are too many or too large, if no mount limits it.

        Files that have lost their names are found by its descriptors. Those that only a mapping
        holds count towards its address space.
        """
        if self._limited:
            return False
        try:
            found = _sizes(self.path, 2 * FOLDER_FILES) | _nameless_sizes(pid, self._device)
        except PermissionError:  # a folder hides what it holds
            return True
        return len(found) > FOLDER_FILES or sum(found.values()) > FOLDER_MB << 20


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


def _write(folder: int, source: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(PROGRAM_NAME, flags, 0o666, dir_fd=folder), "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(source)


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _sizes(path: str, most: int) -> dict[int, int]:
    """Return inode → bytes of at most `most` files and folders below a path.

    Raises PermissionError at a folder that this user may not list.
    """
    found: dict[int, int] = {}
    for folder, folders, files in os.walk(path, onerror=_raise_if_hidden):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):  # it has just been removed
                status = os.lstat(os.path.join(folder, name))
                found[status.st_ino] = status.st_blocks << 9
            if len(found) > most:
                return found
    return found


def _raise_if_hidden(error: OSError) -> None:
    if isinstance(error, PermissionError):
        raise error


def _nameless_sizes(pid: int, device: int) -> dict[int, int]:
    """Return inode → bytes of the files on a device that a process has open and that lost names."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{number}")
                if status.st_dev == device and status.st_nlink == 0:
                    found[status.st_ino] = status.st_blocks << 9
    return found
