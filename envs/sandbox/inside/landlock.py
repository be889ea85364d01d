"""Landlock: file access limited to the Python runtime, where user namespaces are refused.

Weaker than namespaces: names and attributes of files stay visible, and before Linux 6.12 it does
not keep signals in (the system-call filter does).
"""

from __future__ import annotations

import os
import stat
import struct

from envs.sandbox.inside.kernel import check, libc

CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_HANDLED_FS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_HANDLED_NET, _SCOPED = 0b11, 0b11  # TCP bind and connect (ABI 4); abstract sockets, signals (6)


class Ruleset:
    """The rights of a test process: reading below some paths, writing to devices among them.

    Raises OSError where the kernel has no Landlock.
    """

    def __init__(self, readable: list[str]) -> None:
        abi = check(libc.syscall(CREATE_RULESET, None, 0, 1), "Landlock")
        handled = _HANDLED_FS[max(version for version in _HANDLED_FS if version <= abi)]
        fields = [handled, _HANDLED_NET if abi >= 4 else 0, _SCOPED if abi >= 6 else 0]
        fields = fields[: 3 if abi >= 6 else 2 if abi >= 4 else 1]
        attributes = struct.pack(f"{len(fields)}Q", *fields)
        created = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
        self._ruleset = check(created, "Landlock ruleset")
        for path in readable:
            self._allow(path, _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0))
            if stat.S_ISCHR(os.stat(path).st_mode):  # null and its like keep nothing
                self._allow(path, _WRITE_FILE | (_TRUNCATE if abi >= 3 else 0))

    def _allow(self, path: str, rights: int) -> None:
        parent = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights, parent)
        beneath = 1  # LANDLOCK_RULE_PATH_BENEATH
        check(libc.syscall(_ADD_RULE, self._ruleset, beneath, rule, 0), f"Landlock rule {path}")
        os.close(parent)

    def install(self) -> None:
        """Confine this process for good."""
        check(libc.syscall(_RESTRICT_SELF, self._ruleset, 0), "Landlock")
