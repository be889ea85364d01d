"""What the commands of studies share: their own keys beside a run's overrides, and their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TypeVar

from envs.config_parsing import parse_arguments as options_of
from experiments.errors import UserError
from experiments.run_dir.interrupts import exit_on_interrupt

T = TypeVar("T")
V = TypeVar("V")

FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # exit statuses


def command(arguments: Sequence[str], told: str, act: Callable[[Sequence[str]], int]) -> int:
    """`act` on what was given, or `told` where help is asked for → the exit status."""
    if not arguments or any(argument in ("-h", "--help", "help") for argument in arguments):
        print(told)
        return 0
    exit_on_interrupt()
    try:
        return act(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        print("interrupted; the same command goes on")
        return INTERRUPTED


def split(schema: type[T], arguments: Sequence[str]) -> tuple[T, list[str]]:
    """Our own keys as a `schema`, and overrides of the runs. Raises UserError."""
    keys = {field.name for field in fields(schema)}
    own = [argument for argument in arguments if argument.partition("=")[0] in keys]
    given = [argument for argument in arguments if argument not in own]
    for argument in given:
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise UserError(f"{argument!r}: write key=value (see --help)")
        if key == "seed":
            raise UserError(f"{argument}: a study runs on its own seeds; seeds={value} takes some")
    try:
        return options_of(schema, own), given
    except ValueError as error:
        raise UserError(f"{error} (see --help)") from None


def say(text: str) -> None:
    """A line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def choose(key: str, text: str | None, known: Sequence[V], separator: str = ",") -> list[V]:
    """The listed values in their known order; all if `text` is None. Raises UserError."""
    if text is None:
        return list(known)
    listed = text.split(separator)
    if unknown := [value for value in listed if value not in map(str, known)]:
        raise UserError(f"{key}={unknown[0]}: choose from {', '.join(map(str, known))}")
    return [value for value in known if str(value) in listed]
