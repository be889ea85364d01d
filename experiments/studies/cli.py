"""Command-line handling of all study commands: arguments, exit statuses, progress lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from envs.command_line import did_you_mean, parse_arguments, print_help, wants_help
from experiments.errors import UserError
from experiments.run_dir.interrupts import exit_on_interrupt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from experiments.config.schema import RunConfig

Schema = TypeVar("Schema", bound="DataclassInstance")
Value = TypeVar("Value")

FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # exit statuses


def run_command(
    arguments: Sequence[str],
    help_text: str,
    schema: type,
    act: Callable[[Sequence[str]], int],
) -> int:
    """Call `act` with the arguments, or print the help; returns the exit status.

    `schema`: the dataclass of the command's own keys, which the help lists.
    """
    if not arguments or wants_help(arguments):
        print_help(schema, help_text)
        return 0
    exit_on_interrupt()
    try:
        return act(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        print("interrupted; the same command resumes")
        return INTERRUPTED


def split_arguments(schema: type[Schema], arguments: Sequence[str]) -> tuple[Schema, list[str]]:
    """Separate the command's own keys, as a `schema`, from overrides of runs. Raises UserError."""
    from experiments.config.schema import RunConfig

    keys = {field.name for field in fields(schema)}
    own = [argument for argument in arguments if argument.partition("=")[0] in keys]
    overrides = [argument for argument in arguments if argument not in own]
    known = {field.name for field in fields(RunConfig)} | {"experiment"}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise UserError(f"{override!r}: write key=value (see --help)")
        if "." not in key and key.lstrip("+~") not in known:
            near = did_you_mean(key, sorted(keys | known))
            raise UserError(f"{override}: no key of this command or of a run; {near}(see --help)")
        if key == "seed":
            raise UserError(f"{override}: a study has its own seeds; seeds={value} selects some")
    try:
        return parse_arguments(schema, own), overrides
    except ValueError as error:
        raise UserError(f"{error} (see --help)") from None


def check_runs(configs: Sequence[RunConfig], starts: bool = True) -> None:
    """Raise UserError for what would end one of these runs at its start, as run.py looks for it.

    Their output folders are there. `starts`: they start now, on this machine.
    """
    from experiments.config.preflight import check_before_start

    check_before_start(configs)


def choose(
    key: str, text: str | None, choices: Sequence[Value], separator: str = ","
) -> list[Value]:
    """The listed values in the order of `choices`; all if `text` is None. Raises UserError."""
    if text is None:
        return list(choices)
    listed = text.split(separator)
    if unchoices := [value for value in listed if value not in map(str, choices)]:
        near = did_you_mean(unchoices[0], list(map(str, choices)))
        raise UserError(f"{key}={unchoices[0]}: {near}choose from {', '.join(map(str, choices))}")
    return [value for value in choices if str(value) in listed]


def check_place(key: str, folder: Path) -> None:
    """Raise UserError if files cannot be written into a folder, which need not be there yet."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UserError(f"{key}={folder}: {there} is a file; choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{key}={folder}: no permission to write into {there}")


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
