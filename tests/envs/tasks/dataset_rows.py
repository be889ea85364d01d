"""Rows of data sets for tests, and the tasks and converters that read them."""

import json
import os
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from envs.problem import Problem
from envs.tasks.rows import convert_row, find_files, load_converter, read_rows, unique_names
from envs.tasks.task import FilesConfig, task_config

DATA = Path(os.environ.get("SPO_BENCH_DATA") or Path(__file__).parents[4] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data rows in {DATA}")
WORDS = ("alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota", "kappa", "mu", "nu")


def statement(number):
    """Statements that share few word 5-grams with one another."""
    chosen = [WORDS[(number * 7 + i * i + i) % len(WORDS)] + str(number) for i in range(12)]
    return f"Given an integer print {' '.join(chosen)}."


def taco_row(number, **changed):
    tests = {"inputs": [f"{i}\n" for i in range(6)], "outputs": [f"{i}\n" for i in range(6)]}
    return {
        "question": statement(number),
        "input_output": json.dumps(tests),
        "solutions": json.dumps(["print(input())"]),
        "starter_code": "",
        "time_limit": "2 seconds",
    } | changed


def code_contests_row(number, name, **changed):
    return {
        "name": name,
        "description": statement(number),
        "public_tests": {"input": ["1\n"], "output": ["1\n"]},
        "private_tests": {
            "input": [f"{i}\n" for i in range(9)],
            "output": [f"{i}\n" for i in range(9)],
        },
        "solutions": {"language": [2, 3], "solution": ["int main(){}", "print(input())"]},
    } | changed


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def config(name, path, **changed):
    sizes = {f"{split}_problems": 1000 for split in ("train", "tune", "choose", "test")}
    return replace(composed(name), path=path, **sizes | changed)


def converter_of(name):
    """How a task of conf/task/ turns rows into problems."""
    task = composed(name)
    return load_converter(task.rows, task.fields, "task.rows")


@cache
def composed(name):
    return task_config([f"task={name}"])


def every_problem(task):
    return [problem for problems in task.splits().values() for problem in problems]


def names(problems):
    return {problem.name for problem in problems}


def load_problems(name, path):
    """(All problems of a file with all their tests, counts of the reasons for skipped rows)."""
    (file,) = find_files(str(path), "task.path", FilesConfig())["all"]
    converter = converter_of(name) if isinstance(name, str) else name
    items = [convert_row(converter, row, i) for i, (_, row) in enumerate(read_rows(file))]
    problems = [item for item in items if isinstance(item, Problem)]
    names = unique_names(problem.name for problem in problems)
    problems = [replace(problem, name=name) for problem, name in zip(problems, names, strict=True)]
    return problems, Counter(str(item) for item in items if not isinstance(item, Problem))
