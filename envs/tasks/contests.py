"""Public contest data sets as tasks: TACO, CodeContests, APPS, and the paper's crossing of two.

Rows come from a file, whose problems are then split by their names, or from a folder that holds
the data set's own splits as files. Whatever is left out is counted by its reason.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from envs.extract import as_response
from envs.problem import Problem, Test
from envs.tasks import Task
from envs.tasks.config import TaskConfig
from envs.tasks.prompts import contest_prompt
from envs.tasks.rows import load
from envs.tasks.similar import similar_pairs

# task → (the schema of train's rows, that of test's rows)
SCHEMAS = {
    "taco": ("taco", "taco"),
    "code_contests": ("code_contests", "code_contests"),
    "apps": ("apps", "apps"),
    "paper": ("code_contests", "taco"),  # as arXiv 2503.05453 trains and tests
}
# Where each can be had, for the error that says so.
HOMES = {"taco": "BAAI/TACO", "code_contests": "deepmind/code_contests", "apps": "codeparrot/apps"}
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1  # of a single file's problems
_SPLIT_FILES = {"train": "train*", "validation": "valid*", "test": "test*"}


@dataclass
class _Reader:
    """Reads one data set and counts what it leaves out."""

    config: TaskConfig
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def read(self, schema: str, file: Path) -> list[Problem]:
        """The usable problems of a file, with their tests capped."""
        problems, skipped = load(schema, file)
        self.rows += len(problems) + skipped.total()
        self.left_out += skipped
        capped = [_cap(problem, self.config) for problem in problems if self._usable(problem)]
        self.left_out["tests over task.max_test_bytes"] += sum(not p.tests for p in capped)
        return [problem for problem in capped if problem.tests]

    def _usable(self, problem: Problem) -> bool:
        reason = None
        if problem.checker == "needs_checker":
            reason = "needs a checker of its own"
        elif not problem.statement.strip():
            reason = "no statement"
        if reason:
            self.left_out[reason] += 1
        return reason is None

    def splits(self, schema: str, path: Path) -> dict[str, list[Problem]]:
        """The splits of a file or folder; a validation that is missing is cut from train."""
        if path.is_dir():
            found = {split: self._files(schema, path, split) for split in _SPLIT_FILES}
            if not found["validation"]:
                found |= divide(found["train"], {"validation": VALIDATION_SHARE}, "train")
            return found
        shares = {"test": TEST_SHARE, "validation": VALIDATION_SHARE}
        return divide(self.read(schema, path), shares, "train")

    def _files(self, schema: str, folder: Path, split: str) -> list[Problem]:
        files = sorted(
            file
            for file in folder.rglob(_SPLIT_FILES[split])
            if file.suffix in (".jsonl", ".json", ".parquet")
        )
        # A row's number within its file is its name, so several files of a split need their own.
        return [
            replace(problem, name=f"{problem.name}@{file.stem}")
            for file in files
            for problem in self.read(schema, file)
        ]


def open_contests(config: TaskConfig) -> Task:
    """The task of a public data set. Raises ValueError and OSError, naming the key."""
    train_schema, test_schema = SCHEMAS[config.name]
    reader = _Reader(config)
    splits = reader.splits(train_schema, _path(config, "path", train_schema))
    if config.name == "paper" or config.test_path:
        file = _path(config, "test_path", test_schema)
        there = reader.splits(test_schema, file)
        # A file given as the test set is one whole; a folder brings its own test split.
        splits["train"] += splits["test"]
        splits["test"] = there["test"] if file.is_dir() else [p for s in there.values() for p in s]
    pairs: list[dict[str, object]] = []
    if config.decontaminate:
        pairs = similar_pairs(splits["train"] + splits["validation"], splits["test"])
        gone = {pair["train"] for pair in pairs}
        for split in ("train", "validation"):
            splits[split] = [p for p in splits[split] if p.name not in gone]
        reader.left_out["stands in the test split too"] += len(gone)
    return Task(
        train=_some(splits["train"], config.train_problems),
        validation=_some(splits["validation"], config.validation_problems),
        test=_some(splits["test"], config.test_problems),
        prompt=contest_prompt,
        response=as_response,
        rows_read=reader.rows,
        left_out=+reader.left_out,
        decontaminated=pairs,
    )


def divide(
    problems: list[Problem], shares: dict[str, float], rest: str
) -> dict[str, list[Problem]]:
    """Split by a hash of the statement: the same problem lands in the same split in every file."""
    found: dict[str, list[Problem]] = {split: [] for split in (*shares, rest)}
    for problem in problems:
        at = _unit(problem.statement)
        for split, share in shares.items():
            if at < share:
                found[split].append(problem)
                break
            at -= share
        else:
            found[rest].append(problem)
    return found


def _path(config: TaskConfig, key: str, schema: str) -> Path:
    given = getattr(config, key)
    if given is None:
        home = HOMES[schema]
        raise ValueError(
            f"task={config.name} needs task.{key}=FILE or FOLDER with rows of {schema}; fetch "
            f"them with `hf download --repo-type dataset {home} --local-dir FOLDER`"
        )
    if not Path(given).exists():
        raise ValueError(f"task.{key}={given}: no such file or folder")
    return Path(given)


def _cap(problem: Problem, config: TaskConfig) -> Problem:
    """At most max_tests tests of at most max_test_bytes: samples first, then drawn by its name."""
    hidden = [test for test in problem.tests if test not in problem.samples]
    random.Random(f"tests/{problem.name}").shuffle(hidden)
    kept: list[Test] = []
    left = config.max_test_bytes
    for test in (*problem.samples, *hidden):
        size = len(test.input.encode()) + len(test.output.encode())
        if len(kept) < config.max_tests and size <= left:
            kept.append(test)
            left -= size
    return replace(problem, tests=tuple(kept))


def _some(problems: list[Problem], count: int) -> list[Problem]:
    """At most `count` of them, in an order that depends on their statements alone."""
    return sorted(problems, key=lambda problem: (_unit(problem.statement), problem.name))[:count]


def _unit(text: str) -> float:
    """A number in [0, 1) that depends on the text's words alone."""
    digest = hashlib.sha256(" ".join(text.split()).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
