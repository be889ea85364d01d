"""Errors as users see them: one line, without a traceback; how runs end, and commands."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from envs.command_line import parse_arguments, quiet_when_unread
from envs.sandbox.base import SandboxError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # exit statuses
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class UserError(Exception):
    """An error that the user can correct; the message names the fault and the cure."""


@dataclass(frozen=True)
class End:
    """How a run ended, or stands."""

    status: str  # finished | interrupted | failed | running | not run
    folder: Path | None = None  # None: there is none yet
    error: str | None = None  # in one line
    pass_at: dict[int, float] = field(default_factory=dict)  # k → pass@k of a finished run's end
    kept: bool = False  # it had finished before
    expected: bool = True  # the line says all; else the folder's traceback.txt says more


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


def is_rank_zero() -> bool:
    """Whether this process prints for the run: rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def exit_with(act: Callable[[], int | None], interrupted: str = "") -> NoReturn:
    """End the process with the status that `act` returns, or after a UserError in one line.

    `interrupted`: what to print after Ctrl-C.
    """
    status: int | None
    with quiet_when_unread():
        try:
            status = act()
        except UserError as error:
            if is_rank_zero():
                print(f"error: {error}", file=sys.stderr)
            status = MISUSED
        except KeyboardInterrupt:
            print(interrupted, end="\n" * bool(interrupted))
            status = INTERRUPTED
    sys.exit(status)


def command(options: type[Any], main: Callable[[Any], int | None]) -> NoReturn:
    """Call `main` with the key=value arguments of the command line, and exit."""

    def act() -> int | None:
        try:
            doc = sys.modules["__main__"].__doc__
            return main(parse_arguments(options, sys.argv[1:], doc=doc))
        except ValueError as error:
            raise UserError(str(error)) from error

    exit_with(act)
