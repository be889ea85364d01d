"""Errors as users see them: one line, without a traceback; and commands that print them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from typing import Any

from envs.command_line import parse_arguments, quiet_when_unread
from envs.sandbox.base import SandboxError

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class UserError(Exception):
    """An error that the user can correct; the message names the fault and the cure."""


def one_line(error: BaseException) -> str:
    """Return the error in one line. A full disk is always reported as such."""
    if is_full(error):
        filename = getattr(error, "filename", None)
        where = f" at {filename}" if filename else ""
        return f"the disk is full{where}; free some of it, or choose another output_dir"
    text = (" ".join(str(error).split("\n")[0].split()))[:500]
    if isinstance(error, (UserError, SandboxError)):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_expected(error: BaseException) -> bool:
    """Whether one line says enough: the user can correct it, and no code is at fault."""
    return isinstance(error, (UserError, SandboxError)) or is_full(error)


def is_full(error: BaseException) -> bool:
    """Whether the disk is full. Libraries that write weights give the errno in their text only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL
    return any(f"(os error {code})" in str(error) for code in DISK_FULL)


def command(options: type[Any], main: Callable[[Any], int | None]) -> None:
    """Call `main` with the key=value arguments of the command line, and exit."""
    with quiet_when_unread():
        try:
            given = parse_arguments(options, sys.argv[1:], doc=sys.modules["__main__"].__doc__)
            sys.exit(main(given))
        except (UserError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
