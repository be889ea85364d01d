"""`make bench-prepare`: time and memory to prepare a large data set, and to start on it again.

Writes a synthetic file in TACO's schema and opens it twice, each time in a new process, as a run
does: problems, splits, decontamination, and the prompts in the bundled model's tokens.
"""

from __future__ import annotations

import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.benchmarks import common
from experiments.benchmarks.common import Row, in_new_process, row
from experiments.rollout.prompts import encode_prompts

MEASURES = ("open", "prompts", "peak memory")


@dataclass
class Options(common.Options):
    rows: PositiveInt = 25_000  # of the data set


def main(options: Options) -> None:
    """Measure and write `prepare.json`."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        with file.open("w") as lines:
            lines.writelines(json.dumps(each) + "\n" for each in synthetic_rows(options.rows))
        for case in ("first start", "second start"):
            problems, *cost = in_new_process(open_data_set, file, f"{folder}/cache")
            for measure, unit, value in zip(MEASURES, ("s", "s", "MiB"), cost, strict=True):
                rows.append(row(case, measure, [value], unit))
        sizes = {"file_mib": file.stat().st_size / 2**20, "problems": problems}
        sizes["prepared_mib"] = sum(f.stat().st_size for f in Path(folder).rglob("*.arrow")) / 2**20
    common.finish("prepare", rows, options.out, file_rows=options.rows, **sizes)


def open_data_set(file: Path, cache: str) -> tuple[int, float, float, float]:
    """Open the data set and encode its prompts, as a run does → problems, then MEASURES."""
    import transformers

    os.environ["SPO_BENCH_CACHE"] = cache
    transformers.utils.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(common.ROOT / "assets/nano")
    config = task_config(["task=taco", f"task.path={file}", "task.max_prompt_tokens=4096"])
    start = time.perf_counter()
    task = open_task(config)
    opened = time.perf_counter()
    prompts, _ = encode_prompts(task.train, task, tokenizer, config, {})
    encoded = time.perf_counter()
    for index in range(0, len(prompts), max(1, len(prompts) // 200)):
        assert prompts[index].problem.tests  # as a run's first batches read them
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return len(task.train), opened - start, encoded - opened, peak_mib


Json = dict[str, Any]
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "jek", "li", "mo", "nu", "que", "ri", "sta", "ve")
EMPTY_COLUMNS = (
    "raw_tags skill_types url Expected_Auxiliary_Space date picture_num Expected_Time_Complexity"
)


def synthetic_rows(count: int) -> Iterator[Json]:
    """Rows of about 30 kB with a heavy tail, without meaning."""
    rng = random.Random("synthetic taco/0")
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(4000)]
    return (_row(rng, words) for _ in range(count))


def _row(rng: random.Random, words: list[str]) -> Json:
    tests = [_test(rng) for _ in range(rng.choice((1, 3, 10, 40, 120)))]
    input_output = {"inputs": [test[0] for test in tests], "outputs": [test[1] for test in tests]}
    statement = " ".join(rng.choices(words, k=rng.randint(60, 400)))
    solutions = [
        f"print(sum(map(int, input().split())) + {i} * 0)\n" for i in range(rng.randint(0, 30))
    ]
    return {
        "question": f"{statement}\n\n-----Examples-----\nInput\n{tests[0][0]}Output\n{tests[0][1]}",
        "solutions": json.dumps(solutions),
        "starter_code": "",
        "input_output": json.dumps(input_output),
        "difficulty": rng.choice(("EASY", "MEDIUM", "HARD", "UNKNOWN_DIFFICULTY")),
        "name": None,
        "source": rng.choice(("codeforces", "codechef", "aizu", "")),
        "tags": rng.choice(("[]", "['Math']", "['Data structures', 'Sorting']", "[broken")),
        "time_limit": rng.choice((None, "2 seconds", "1.5 - 3 sec", "2000 ms", "2.0 seconds")),
        "memory_limit": rng.choice((None, "256 megabytes", "65536 KB", "1.5 GB")),
        **dict.fromkeys(EMPTY_COLUMNS.replace("_", " ").split(), None),
    }


def _test(rng: random.Random) -> tuple[str, str]:
    numbers = [rng.randint(-(10**9), 10**9) for _ in range(int(rng.paretovariate(0.55)) % 9000 + 1)]
    return " ".join(map(str, numbers)) + "\n", f"{sum(numbers)}\n"


if __name__ == "__main__":
    common.command(Options, main)
