"""Rebuild a bundled model, by its size; the same command resumes after any interruption.

python -m experiments.nano size=1m out=assets/nano seed=0
python -m experiments.nano size=5m out=assets/nano_5m seed=0
python -m experiments.nano size=feedback out=assets/nano_feedback seed=0
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from envs.command_line import parse_arguments, quiet_when_unread
from experiments.nano.recipes import RECIPES, Recipe


def main(arguments: list[str]) -> int:
    """Train, then move the files to `out`; returns the exit status."""
    size = dict(argument.partition("=")[::2] for argument in arguments).get("size", "1m")
    schema = RECIPES.get(size, Recipe)  # of an unknown size the parser complains

    @dataclass(frozen=True, kw_only=True)
    class Arguments(schema):  # type: ignore[misc, valid-type]
        out: Path  # folder of the model
        # the defaults of the other keys are this one's
        size: Literal["1m", "5m", "feedback"] = "1m"

    try:
        given = parse_arguments(Arguments, arguments)
        _train(schema(**{key.name: getattr(given, key.name) for key in fields(schema)}), given.out)
    except ValueError as error:
        print(f"nano: {error}", file=sys.stderr)
        return 2
    return 0


def _train(recipe: Recipe, out: Path) -> None:
    """Train in a folder beside `out`, which an interrupted training leaves to be resumed."""
    started = time.perf_counter()
    folder = out.with_name(f"{out.name}.unfinished")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out={out}: {error.strerror}; choose a writable folder") from error
    from experiments.nano.pretrain import pretrain

    pretrain(folder, recipe)
    out.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.replace(out / file.name)
    folder.rmdir()
    print(f"nano: {out}, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
