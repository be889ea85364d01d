"""Rows in TACO's schema, every eighth malformed in one of the 16 ways of the real file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.benchmarks.prepare import Json, synthetic_rows


def write(out: Path, count: int) -> None:
    """Write `count` rows as JSON lines."""
    rng = random.Random(0)
    with out.open("w", encoding="utf-8") as file:
        for number, row in enumerate(synthetic_rows(count)):
            if number % 8 == 7:
                row = MALFORMED[number // 8 % len(MALFORMED)](row, rng)
            file.write((row if isinstance(row, str) else json.dumps(row)) + "\n")


def _change_tests(row: Json, change: Callable[[Json], object]) -> Json:
    tests = json.loads(row["input_output"])
    change(tests)
    return row | {"input_output": json.dumps(tests)}


MALFORMED: Sequence[Callable[[Json, random.Random], Json | str]] = (
    lambda row, rng: row | {"input_output": ""},
    lambda row, rng: row | {"input_output": row["input_output"][:-9]},
    lambda row, rng: row | {"solutions": '["half'},
    lambda row, rng: row | {"solutions": ""},
    lambda row, rng: row | {"question": None},
    lambda row, rng: row | {"question": f"Print any of the answers. {row['question']}"},
    lambda row, rng: _change_tests(row, lambda tests: tests.update(inputs=[], outputs=[])),
    lambda row, rng: _change_tests(row, lambda tests: tests["outputs"].append("1")),
    lambda row, rng: _change_tests(
        row, lambda tests: tests.update(outputs=[""] * len(tests["inputs"]))
    ),
    lambda row, rng: _change_tests(
        row, lambda tests: tests.update(inputs=[text.split() for text in tests["inputs"]])
    ),
    lambda row, rng: _change_tests(
        row, lambda tests: tests.update(fn_name="f", inputs=[[1, [2]]], outputs=[[3]])
    ),
    lambda row, rng: row | {"starter_code": "# write here"},
    lambda row, rng: (
        row | {"input_output": f'{{"inputs": [{"7" * 6000}], "outputs": ["{"7" * 6000}"]}}'}
    ),
    lambda row, rng: row | {"question": "\ud800 " + row["question"]},
    lambda row, rng: json.dumps(row)[: rng.randint(1, 400)],
    lambda row, rng: json.dumps([row["question"]]),
)
