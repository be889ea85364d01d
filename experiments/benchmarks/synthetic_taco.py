"""A file of any size in TACO's schema, with all the oddities of the real one mixed in.

    python -m experiments.benchmarks.synthetic_taco rows=25000 out=FILE.jsonl [seed=0]

For measuring how a whole data set is prepared where it cannot be had; the problems mean nothing.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from envs.config_parsing import parse_arguments

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "jek", "li", "mo", "nu", "que", "ri", "sta", "ve")
_COLUMNS = (
    "raw_tags skill_types url Expected_Auxiliary_Space date picture_num Expected_Time_Complexity"
)


def rows(count: int, seed: int = 0) -> Iterator[str]:
    """Lines of JSON, about 30 kB each with a heavy tail; every eighth is odd in one of 16 ways."""
    rng = random.Random(f"synthetic taco/{seed}")
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(4000)]
    for number in range(count):
        row = _row(rng, words)
        if number % 8 == 7:
            odd = ODDITIES[number // 8 % len(ODDITIES)](row, rng)
            yield odd if isinstance(odd, str) else json.dumps(odd)
        else:
            yield json.dumps(row)


def _row(rng: random.Random, words: list[str]) -> dict[str, Any]:
    tests = [_test(rng) for _ in range(rng.choice((1, 3, 10, 40, 120)))]
    held = {"inputs": [test[0] for test in tests], "outputs": [test[1] for test in tests]}
    statement = " ".join(rng.choices(words, k=rng.randint(60, 400)))
    solutions = [
        f"print(sum(map(int, input().split())) + {i} * 0)\n" for i in range(rng.randint(0, 30))
    ]
    return {
        "question": f"{statement}\n\n-----Examples-----\nInput\n{tests[0][0]}Output\n{tests[0][1]}",
        "solutions": json.dumps(solutions),
        "starter_code": "",
        "input_output": json.dumps(held),
        "difficulty": rng.choice(("EASY", "MEDIUM", "HARD", "UNKNOWN_DIFFICULTY")),
        "name": None,
        "source": rng.choice(("codeforces", "codechef", "aizu", "")),
        "tags": rng.choice(("[]", "['Math']", "['Data structures', 'Sorting']", "[broken")),
        "time_limit": rng.choice((None, "2 seconds", "1.5 - 3 sec", "2000 ms", "2.0 seconds")),
        "memory_limit": rng.choice((None, "256 megabytes", "65536 KB", "1.5 GB")),
        **dict.fromkeys(_COLUMNS.replace("_", " ").split(), None),
    }


def _test(rng: random.Random) -> tuple[str, str]:
    numbers = [rng.randint(-(10**9), 10**9) for _ in range(int(rng.paretovariate(0.55)) % 9000 + 1)]
    return " ".join(map(str, numbers)) + "\n", f"{sum(numbers)}\n"


def _tests(row: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    held = json.loads(row["input_output"])
    change(held)
    return row | {"input_output": json.dumps(held)}


ODDITIES: Sequence[Callable[[dict[str, Any], random.Random], dict[str, Any] | str]] = (
    lambda row, rng: row | {"input_output": ""},
    lambda row, rng: row | {"input_output": row["input_output"][:-9]},
    lambda row, rng: row | {"solutions": '["half'},
    lambda row, rng: row | {"solutions": ""},
    lambda row, rng: row | {"question": None},
    lambda row, rng: row | {"question": f"Print any of the answers. {row['question']}"},
    lambda row, rng: _tests(row, lambda held: held.update(inputs=[], outputs=[])),
    lambda row, rng: _tests(row, lambda held: held["outputs"].append("1")),
    lambda row, rng: _tests(row, lambda held: held.update(outputs=[""] * len(held["inputs"]))),
    lambda row, rng: _tests(
        row, lambda held: held.update(inputs=[text.split() for text in held["inputs"]])
    ),
    lambda row, rng: _tests(
        row, lambda held: held.update(fn_name="f", inputs=[[1, [2]]], outputs=[[3]])
    ),
    lambda row, rng: row | {"starter_code": "# write here"},
    lambda row, rng: (
        row | {"input_output": f'{{"inputs": [{"7" * 6000}], "outputs": ["{"7" * 6000}"]}}'}
    ),
    lambda row, rng: row | {"question": "\ud800 " + row["question"]},
    lambda row, rng: json.dumps(row)[: rng.randint(1, 400)],
    lambda row, rng: json.dumps([row["question"]]),
)


def write(out: Path, count: int, seed: int = 0) -> None:
    """One row a line."""
    with out.open("w", encoding="utf-8") as lines:
        for line in rows(count, seed):
            lines.write(line + "\n")


@dataclass
class Options:
    """The command line."""

    out: Path  # a .jsonl file
    rows: PositiveInt = 25_000
    seed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """0: written; 2: an argument that cannot be used."""
    try:
        options = parse_arguments(Options, sys.argv[1:] if argv is None else argv)
        write(options.out, options.rows, options.seed)
    except (ValueError, OSError) as error:
        print(f"synthetic_taco: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
