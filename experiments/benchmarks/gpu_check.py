"""`make gpu-check`: all that only a GPU can show, in under nine minutes on a card of 80 GB.

Every part runs in a process of its own, within what is left of the time; one that cannot run, for
want of vLLM, of memory, of time, or of a GPU, is on the page with its reason, and the others go on.
`ARGS=--small` runs every part at tiny shapes, in this process, on whatever device there is: so that
an hour with a GPU is spent on measuring. Results: `gpu.json` and `gpu.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.benchmarks import rows
from experiments.benchmarks.every import table
from experiments.benchmarks.rows import Row

BUDGET_S = 8.5 * 60
ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"torch": "2.13.0", "transformers": "5.19.0"}  # what all else was tested with


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the page → how many parts failed."""
    options = parse(argv)
    if options.part:
        rows_ = one(*options.part, options.small)
        options.out.write_text(json.dumps([asdict(each) for each in rows_]))
        return 0
    begin, found, skipped, failed = time.monotonic(), {}, {}, {}
    for name, size in planned():
        key = f"{name} {size}"
        left = options.budget - (time.monotonic() - begin)
        if left < 5:
            skipped[key] = f"no time left of {options.budget:.0f} s"
            continue
        status, told = attempt(name, size, options.small, left)
        {"done": found, "skipped": skipped, "failed": failed}[status][key] = told
        print(f"{key}: {status}", told if status != "done" else "", flush=True)
    write(options.out, found, skipped, failed, time.monotonic() - begin)
    print(f"written to {options.out / 'gpu.md'}")
    return len(failed)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="tiny shapes, any device, in seconds")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for all parts")
    parser.add_argument("--out", type=Path, default=rows.FOLDER / "gpu")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def planned() -> list[tuple[str, str]]:
    """(part, size) in the order in which they are run: all parts small before any large."""
    from experiments.benchmarks.gpu.parts import PARTS
    from experiments.benchmarks.gpu.sizes import SIZES

    return [(name, size) for size in SIZES for name, (_, of) in PARTS.items() if size in of]


def one(name: str, size: str, small: bool) -> list[Row]:
    """One part's rows; SkippedError where it cannot be run here."""
    import torch

    from experiments.benchmarks.gpu.parts import PARTS
    from experiments.benchmarks.gpu.sizes import SIZES, SMALL, Bench, SkippedError
    from experiments.policy.loading import pick_device

    device = pick_device("auto")
    if device.type == "cpu" and not small:
        raise SkippedError("no GPU here; ARGS=--small tries the parts at tiny shapes")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench((SMALL if small else SIZES)[size], device, Path(folder), 1 if small else 3)
        return PARTS[name][0](bench)


def attempt(name: str, size: str, small: bool, left: float) -> tuple[str, Any]:
    """(done, its rows), (skipped, why) or (failed, how)."""
    from experiments.benchmarks.gpu.sizes import SkippedError

    if small:
        try:
            return "done", [asdict(each) for each in one(name, size, small)]
        except SkippedError as reason:
            return "skipped", str(reason)
        except Exception as error:
            return "failed", f"{type(error).__name__}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "experiments.benchmarks.gpu_check"]
        command += ["--part", name, size, "--out", str(out)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            return "skipped", f"not done within the {left:.0f} s that were left"
        if done.returncode == 0:
            return "done", json.loads(out.read_text())
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        kind, _, why = last.partition(": ")
        return ("skipped", why) if kind.endswith("SkippedError") else ("failed", last)


def write(folder: Path, found: dict, skipped: dict, failed: dict, taken: float) -> None:
    """`gpu.json` and the page."""
    made = rows.made() | {"seconds": round(taken), "device": device_name()}
    told = differences(made["versions"])
    held = {"made": made, "notes": told, "parts": found, "skipped": skipped, "failed": failed}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n")
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    lines = ["# On a GPU", "", f"{made['device']}; {made['machine']}; {versions}; commit "]
    lines[-1] += f"{made['commit']}; {made['when']}; {taken:.0f} s."
    lines += ["", *told, ""] if told else [""]
    for key, part in found.items():
        lines += [f"## {key}", "", table(part), ""]
    for title, held_back in (("Left out", skipped), ("Failed", failed)):
        if held_back:
            lines += [f"## {title}", "", *(f"- {key}: {why}" for key, why in held_back.items()), ""]
    (folder / "gpu.md").write_text("\n".join(lines))


def device_name() -> str:
    import torch

    if not torch.cuda.is_available():
        return "no GPU: a trial at tiny shapes, whose figures mean nothing"
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    return f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB"


def differences(versions: dict[str, str]) -> list[str]:
    """What is not the version that all else was tested with, in words."""
    found = {name: versions.get(name, "none").split("+")[0] for name in KNOWN}
    return [
        f"{name} {found[name]} here; all else was tested with {known}."
        for name, known in KNOWN.items()
        if found[name] != known
    ]


if __name__ == "__main__":
    sys.exit(min(1, main()))
