"""Rebuild the nano model: `python -m experiments.nano out=assets/nano seed=0`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Read `key=value` arguments, train in a temporary folder, move the files to `out`."""
    from experiments.nano.pretrain import Recipe, pretrain

    known = {field.name: type(field.default) for field in fields(Recipe)}
    out, recipe = None, Recipe()
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "out" and value:
            out = Path(value)
            continue
        try:
            recipe = replace(recipe, **{key: known[key](value)})
        except (KeyError, ValueError):
            print(f"nano: cannot use {argument!r}: give out=FOLDER and any of {', '.join(known)}")
            return 2
    if out is None:
        print("nano: out=FOLDER is missing, e.g. out=assets/nano")
        return 2
    started = time.perf_counter()
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
