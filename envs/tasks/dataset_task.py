"""Data sets of rows as tasks: TACO, CodeContests, the paper's crossing of the two, one's own.

Rows come from a file, whose problems are then split by their statements, or from a folder or the
hub, which bring the data set's own splits. Whatever is left out is counted by its reason.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from envs.cache_folder import replace_file, root
from envs.judge.extract import as_response
from envs.tasks.config import TaskConfig
from envs.tasks.near_duplicates import SIMILARITY, similar_pairs
from envs.tasks.prompts import DefaultPrompt
from envs.tasks.selection import Entry, Filter, StoredProblems, load_entries
from envs.tasks.storage.rows import converter
from envs.tasks.storage.sources import Source, find
from envs.tasks.storage.store import prepare
from envs.tasks.storage.test_limits import Limits
from envs.tasks.task import Task

FILE_SHARES = {"test": 0.2, "validation": 0.1}  # of a single file's problems
VALIDATION_SHARE = 0.02  # of the train split where a data set has no validation split of its own

Splits = dict[str, list[Entry]]


@dataclass
class _Reader:
    """Opens sources and counts what is left out of them."""

    config: TaskConfig
    filter: Filter
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def open(self, found: dict[str, list[Source]]) -> Splits:
        """The usable problems of each split; one file is divided, and a validation split that is
        missing is cut from train.
        """
        if "all" in found:
            return divide(self.read(found["all"], alone=True), FILE_SHARES)
        splits = {split: self.read(sources, alone=False) for split, sources in found.items()}
        if not splits["validation"]:
            splits |= divide(splits["train"], {"validation": VALIDATION_SHARE})
        return splits

    def read(self, sources: Sequence[Source], alone: bool) -> list[Entry]:
        limits = Limits(self.config.max_tests, self.config.max_test_bytes)
        stores = [prepare(source, limits) for source in sources]
        self.rows += sum(store.rows for store in stores)
        for store in stores:
            self.left_out += store.skipped
        return self.filter.keep(load_entries(stores, alone), self.left_out)


def open_dataset(config: TaskConfig) -> Task:
    """The task of a public data set. Raises ValueError and OSError, naming the key."""
    reader = _Reader(config, Filter(config.filter, config.quality))
    splits = _splits(config, reader)
    pairs: list[dict[str, object]] = []
    if config.decontaminate:
        pairs = _pairs(splits["train"] + splits["validation"], splits["test"])
        gone = {pair["train"] for pair in pairs}
        for split in ("train", "validation"):
            splits[split] = [entry for entry in splits[split] if entry.name not in gone]
        reader.left_out["stands in the test split too"] += len(gone)
    chosen = {
        split: StoredProblems(_some(splits[split], getattr(config, f"{split}_problems")))
        for split in ("train", "validation", "test")
    }
    prompt = DefaultPrompt()
    known = [prompt.digest, *(problems.digest for problems in chosen.values())]
    return Task(
        **chosen,
        prompt=prompt,
        prompt_digest=prompt.digest,
        response=str if config.environment else as_response,
        data_hash=hashlib.sha256(repr(known).encode()).hexdigest()[:16],
        rows_read=reader.rows,
        left_out=+reader.left_out,
        decontaminated=pairs,
    )


def _splits(config: TaskConfig, reader: _Reader) -> Splits:
    """A crossing trains on one data set's train and validation splits and tests on another's test
    split; a file is taken whole for either.
    """
    ours = theirs = converter(config.rows, config.fields, "task.rows")
    if config.test_rows is not None:
        theirs = converter(config.test_rows, config.fields, "task.test_rows")
    here = find(ours, _path(config), "task.path", config.files)
    if config.test_path is None:
        return reader.open(here)
    files = config.test_files or config.files
    there = find(theirs, config.test_path, "task.test_path", files)
    train = reader.open({**here, "test": []} if "test" in here else here)
    train["train"] += train["test"]  # of a file
    return train | {"test": reader.read(there.get("all") or there["test"], alone=False)}


def divide(entries: Sequence[Entry], shares: dict[str, float]) -> Splits:
    """Split by a hash of the statement: the same problem lands in the same split in every file."""
    found: Splits = {split: [] for split in (*shares, "train")}
    for entry in entries:
        at = entry.place
        for split, share in shares.items():
            if at < share:
                found[split].append(entry)
                break
            at -= share
        else:
            found["train"].append(entry)
    return found


def _path(config: TaskConfig) -> str:
    if config.path is None:
        raise ValueError(
            f"task={config.name} needs task.path: a file or folder of rows, or "
            "hf://datasets/ID@COMMIT"
        )
    return config.path


def _pairs(train: Sequence[Entry], test: Sequence[Entry]) -> list[dict[str, object]]:
    """Similar statements of the two sides, looked for once and then remembered."""
    sides = [[(entry.name, entry.digest) for entry in side] for side in (train, test)]
    key = hashlib.sha256(repr((SIMILARITY, sides)).encode()).hexdigest()[:16]
    note = root() / "pairs" / f"{key}.json"
    if note.exists():
        return json.loads(note.read_text())
    columns = (TextColumn("comparing statements"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    quiet = not console.is_terminal
    elapsed = TimeElapsedColumn()
    with Progress(*columns, elapsed, console=console, transient=True, disable=quiet) as progress:
        bar = progress.add_task("", total=len(train))
        pairs = similar_pairs(train, test, lambda done: progress.update(bar, completed=done))
    note.parent.mkdir(parents=True, exist_ok=True)
    replace_file(note, json.dumps(pairs))
    return pairs


def _some(entries: Sequence[Entry], count: int) -> list[Entry]:
    """At most `count` of them, in an order that depends on their statements alone."""
    return sorted(entries, key=lambda entry: (entry.place, entry.name))[:count]
