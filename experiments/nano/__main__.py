"""Rebuild the nano model: `python -m experiments.nano out=assets/nano seed=0`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from envs.config_parsing import parse_arguments


def main(arguments: list[str]) -> int:
    """Train in a temporary folder, then move the files to `out`; returns the exit status."""
    from experiments.nano.pretrain import Recipe, pretrain

    @dataclass(frozen=True, kw_only=True)
    class Arguments(Recipe):
        out: Path

    try:
        recipe = parse_arguments(Arguments, arguments)
    except ValueError as error:
        print(f"nano: {error}", file=sys.stderr)
        return 2
    started, out = time.perf_counter(), recipe.out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        pretrain(Path(folder), recipe)
        for file in Path(folder).iterdir():
            shutil.move(file, out / file.name)
    print(f"nano: {out}, {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
