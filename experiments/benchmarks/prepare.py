"""What it costs to prepare a whole data set, and to start a second time.

`make bench-prepare`, or `python -m experiments.benchmarks.prepare [--rows N] [--out FOLDER]`. Makes
a synthetic file in TACO's schema and opens it twice, each time in a process of its own, as a run
would: problems, splits, decontamination, and the prompts in the bundled model's tokens.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.benchmarks import synthetic_taco
from experiments.benchmarks.rows import row, save

ROOT = Path(__file__).resolve().parents[2]
_MEASURES = ("open", "prompts", "peak memory")
_START = """
import sys, time
import transformers
from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.rollout.prompts import encode_prompts

transformers.utils.logging.set_verbosity_error()
tokenizer = transformers.AutoTokenizer.from_pretrained("assets/nano")
config = task_config(["task=taco", "task.path=" + sys.argv[1], "task.max_prompt_tokens=4096"])
begun = time.perf_counter()
task = open_task(config)
opened = time.perf_counter()
prompts, dropped = encode_prompts(task.train, task, tokenizer, config, {})
encoded = time.perf_counter()
for index in range(0, len(prompts), max(1, len(prompts) // 200)):
    assert prompts[index].problem.tests  # as the first batches of a run would read them
print(len(task.train), opened - begun, encoded - opened)
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; the synthetic file and its cache are removed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=25_000)
    options = parser.parse_args(argv)
    table = Table("start", "problems to train on", "open, s", "prompts, s", "peak memory, MB")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        synthetic_taco.write(file, options.rows)
        size = file.stat().st_size / 2**20
        found = []
        for number in ("first", "second"):
            cells = _start(file, Path(folder) / "cache")
            table.add_row(number, *cells)
            for measure, unit, told in zip(_MEASURES, ("s", "s", "MB"), cells[1:], strict=True):
                found.append(row(f"{number} start", measure, [float(told)], unit))
        cached = sum(part.stat().st_size for part in Path(folder).rglob("*.arrow")) / 2**20
    Console().print(f"{options.rows} rows, {size:.0f} MB; prepared {cached:.0f} MB")
    Console().print(table)
    print(f"written to {save('prepare', found, rows=options.rows)}")


def _start(file: Path, cache: Path) -> tuple[str, ...]:
    """Open the file as a run would, in a process of its own."""
    environment = os.environ | {"SPO_BENCH_CACHE": str(cache)}
    command = [sys.executable, "-c", _START, str(file)]
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the start failed after {time.perf_counter() - begun:.0f} s")
    problems, opened, encoded = out.split()
    return problems, f"{float(opened):.1f}", f"{float(encoded):.1f}", f"{used.ru_maxrss / 1024:.0f}"


if __name__ == "__main__":
    main()
