"""What the commands of studies share: their own keys beside a run's overrides, and their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from experiments.errors import UserError
from experiments.runs.interrupts import end_at_once

FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # exit statuses


def command(arguments: Sequence[str], told: str, act: Callable[[Sequence[str]], int]) -> int:
    """`act` on what was given, or `told` where help is asked for → the exit status."""
    if not arguments or any(argument in ("-h", "--help", "help") for argument in arguments):
        print(told)
        return 0
    end_at_once()
    try:
        return act(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        print("interrupted; the same command goes on")
        return INTERRUPTED


def split(arguments: Sequence[str], keys: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Our own keys, and overrides of the runs."""
    own: dict[str, str] = {}
    given = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise UserError(f"{argument!r}: write key=value (see --help)")
        if key == "seed":
            raise UserError(f"{argument}: a study runs on its own seeds; seeds={value} takes some")
        if key in keys:
            own[key] = value
        else:
            given.append(argument)
    return own, given


def whole_number(key: str, value: str) -> int:
    """A count of at least 1. Raises UserError."""
    if not value.isdecimal() or int(value) < 1:
        raise UserError(f"{key}={value}; it must be a whole number of at least 1")
    return int(value)


def say(text: str) -> None:
    """A line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
