"""Data sets as tasks: TACO, CodeContests, the paper's combination of the two, your own rows.

The problems of a single file are split by a hash of their statements. A folder or the hub brings
the data set's own splits; its validation split is halved into tune and choose by the same hash,
unless choose has files of its own.
Problems that are left out are counted by reason.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import ChainMap, Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from envs.cache_folder import cache_root, replace_file
from envs.import_by_name import code_digest, load_function
from envs.judge.extract import as_response
from envs.tasks.config import TaskConfig
from envs.tasks.near_duplicates import similar_pairs
from envs.tasks.prompts import DefaultPrompt
from envs.tasks.row_selection import RowSelection
from envs.tasks.selection import Entry, Filter, StoredProblems, load_entries
from envs.tasks.storage.rows import load_converter
from envs.tasks.storage.sources import Source, find_sources, of_one_data_set
from envs.tasks.storage.store import prepare_store
from envs.tasks.storage.test_limits import SizeLimits
from envs.tasks.task import SPLITS, Task

FILE_SHARES = {"test": 0.2, "tune": 0.1, "choose": 0.1}  # of a single file's problems; train: rest
TRAIN_SHARES = {"tune": 0.02, "choose": 0.02}  # of train, if a data set has no validation split
TUNE_SHARES = {"tune": 0.02}  # of train, if only choose has files of its own
VALIDATION_SHARES = {"tune": 0.5}  # of validation; choose: the rest
BUNDLED_LOADERS = "envs.tasks.loaders."
PUBLISHED_SPLITS = ("train", "validation", "test")
IN_NO_SPLIT = "stands in no published split"  # why a problem is left out
IN_ANOTHER_SPLIT = "stands in another split too"  # why a problem is left out
TRAIN_ONLY = " (of train only)"  # end of a reason that does not hold for evaluation

Splits = dict[str, list[Entry]]


@dataclass
class _Reader:
    """Prepares sources, filters their problems, and counts those that are left out."""

    config: TaskConfig
    filter: Filter
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    first_left_out: dict[str, str] = field(default_factory=dict)
    split_shares: dict[str, float] = field(default_factory=dict)

    def splits(self, sources: dict[str, list[Source]]) -> Splits:
        """Return the usable problems of each split.

        A single file is divided. Tune and choose are halves of validation, or else cut from train.
        A folder may have choose as files of its own; then tune is validation.
        """
        if self.config.evaluation_only:
            return self._test_only(sources)
        if "all" in sources and not self.config.split_of:
            return self._divide(self.read(sources["all"], alone=True), FILE_SHARES, "train")
        if "all" in sources:
            splits = self._published(self.read(sources["all"], alone=True))
        else:
            splits = {split: self.read(files, alone=False) for split, files in sources.items()}
        validation, choose = splits.pop("validation"), splits.pop("choose", [])
        if sources.get("choose"):
            splits["choose"] = choose
            if sources.get("validation"):
                return splits | {"tune": validation}
            return splits | self._divide(splits["train"], TUNE_SHARES, "train")
        if validation:
            return splits | self._divide(validation, VALIDATION_SHARES, "choose")
        return splits | self._divide(splits["train"], TRAIN_SHARES, "train")

    def _published(self, entries: Sequence[Entry]) -> Splits:
        """Return the splits of a single file as the data set's authors published them."""
        split_of = load_function(str(self.config.split_of), "task.split_of")
        splits: Splits = {split: [] for split in PUBLISHED_SPLITS}
        for entry in entries:
            split = split_of(entry.name)
            if split is None:
                self.left_out[IN_NO_SPLIT] += 1
            elif split in splits:
                splits[split].append(entry)
            else:
                raise ValueError(
                    f"task.split_of={self.config.split_of}: it returned {split!r} for "
                    f"{entry.name}; it must be one of {', '.join(PUBLISHED_SPLITS)}, or None"
                )
        return splits

    def _test_only(self, sources: dict[str, list[Source]]) -> Splits:
        """Return all rows as the test split. Raises ValueError for rows of other splits."""
        for split in ("train", "validation", "choose"):
            if sources.get(split):
                raise ValueError(
                    f"task={self.config.name} is for evaluation only "
                    f"({self.config.evaluation_only}), but {sources[split][0].label} holds its "
                    f"{split} split; give a single file, or a folder with test* files alone"
                )
        alone = "all" in sources
        test = self.read(sources["all"] if alone else sources["test"], alone)
        return {"train": [], "tune": [], "choose": [], "test": test}

    def _divide(self, entries: Sequence[Entry], shares: dict[str, float], rest: str) -> Splits:
        self.split_shares = shares | {rest: 1 - sum(shares.values())}
        return divide(entries, shares, rest)

    def read(self, sources: Sequence[Source], alone: bool) -> list[Entry]:
        limits = SizeLimits(self.config.max_tests, self.config.max_test_bytes)
        stores = [prepare_store(source, limits) for source in sources]
        self.rows += sum(store.rows for store in stores)
        for store in stores:
            self.left_out += store.skipped
            self.first_left_out = store.first_skipped | self.first_left_out
        return self.filter.keep(load_entries(stores, alone), self.left_out)


def open_dataset(config: TaskConfig) -> Task:
    """Open the task of a data set. Raises ValueError or OSError naming the wrong key."""
    readers, splits = [], Splits({split: [] for split in SPLITS})
    parts = data_sets(config)
    for part in parts:
        reader, read = _open_data_set(part)
        readers.append(reader)
        splits = {split: entries + read[split] for split, entries in splits.items()}
    _check_names(config, splits)
    left_out = sum((reader.left_out for reader in readers), Counter[str]())
    duplicates: list[dict[str, object]] = []
    if config.decontaminate:
        splits, duplicates = _decontaminate(splits)
        left_out[IN_ANOTHER_SPLIT] += len({pair["problem"] for pair in duplicates})
    if config.environment is None:
        splits["train"] = _with_strong_tests(splits["train"], config.min_hidden_tests, left_out)
    problems: dict[str, Any] = {
        split: StoredProblems(_first(splits[split], getattr(config, f"{split}_problems")))
        for split in SPLITS
    }
    prompt = DefaultPrompt(own=has_own_samples(parts))
    content = [prompt.digest, *(stored.digest for stored in problems.values())]
    return Task(
        **problems,
        prompt=prompt,
        prompt_digest=prompt.digest,
        response=str if config.environment else as_response,
        data_hash=hashlib.sha256(repr(content).encode()).hexdigest()[:16],
        rows_read=sum(reader.rows for reader in readers),
        left_out=+left_out,
        first_left_out=dict(ChainMap(*(reader.first_left_out for reader in readers))),
        split_shares=readers[0].split_shares if len(readers) == 1 else {},
        decontaminated=duplicates,
    )


def data_sets(config: TaskConfig) -> list[TaskConfig]:
    """Return the configurations of the data sets in `parts`, or the one of a task without parts.

    Raises ValueError naming the part that is wrong.
    """
    from envs.tasks.task_cli import task_config

    parts = []
    for number, text in enumerate(config.parts):
        try:
            name, *keys = shlex.split(text) or [""]
            part = task_config([f"task={name}", *(f"task.{key}" for key in keys)])
            if part.rows is None:
                raise ValueError(f"task={name} has no rows; a part is a data set")
        except ValueError as error:
            raise ValueError(f"task.parts[{number}]={text}: {error}") from error
        parts.append(part)
    return parts or [config]


def has_own_samples(parts: Sequence[TaskConfig]) -> bool:
    """Return whether a user's own rows may name samples: by a column, or in a loader of theirs."""
    return any(
        part.fields.sample_inputs or (part.rows and not part.rows.startswith(BUNDLED_LOADERS))
        for part in parts
    )


def _open_data_set(config: TaskConfig) -> tuple[_Reader, Splits]:
    rows = RowSelection(config)
    problem_filter = Filter(config.filter, config.quality, rows, checkers=config.checkers)
    reader = _Reader(config, problem_filter)
    splits = _read_splits(config, reader)
    rows.check()
    return reader, splits


def _check_names(config: TaskConfig, splits: Splits) -> None:
    counts = Counter(entry.name for entries in splits.values() for entry in entries)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ValueError(
            f"task.parts: {len(twice)} problems, such as {twice[0]}, are in several parts of "
            f"task={config.name}; name each data set once"
        )


def _read_splits(config: TaskConfig, reader: _Reader) -> Splits:
    """Read the splits; with task.test_path the test split comes from that second data set.

    Then a single file is used whole, for training or for testing.
    """
    converter = test_converter = load_converter(config.rows, config.fields, "task.rows")
    if config.test_rows is not None:
        test_converter = load_converter(config.test_rows, config.fields, "task.test_rows")
    sources = find_sources(converter, required_path(config), "task.path", config.files)
    if config.test_path is None:
        return reader.splits(*of_one_data_set(sources))
    files = config.test_files or config.files
    test_sources = find_sources(test_converter, config.test_path, "task.test_path", files)
    sources, test_sources = of_one_data_set(sources, test_sources)
    splits = reader.splits({**sources, "test": []} if "test" in sources else sources)
    splits["train"] += splits["test"]  # of a single file
    test = reader.read(test_sources.get("all") or test_sources["test"], alone=False)
    return splits | {"test": test}


def _with_strong_tests(
    entries: Sequence[Entry], min_hidden: int, left_out: Counter[str]
) -> list[Entry]:
    """Return the problems whose reward has to be earned; count the others in `left_out`.

    A table of the statement's samples, or one constant, would earn the others' reward.
    """
    if not min_hidden:
        return list(entries)
    reasons = [entry.strength.weakness(min_hidden) for entry in entries]
    left_out.update(reason + TRAIN_ONLY for reason in reasons if reason)
    return [entry for entry, reason in zip(entries, reasons, strict=True) if reason is None]


def divide(entries: Sequence[Entry], shares: dict[str, float], rest: str) -> Splits:
    """Split by a hash of the statement: a problem lands in the same split in every file."""
    splits: Splits = {split: [] for split in (*shares, rest)}
    for entry in entries:
        position = entry.split_position
        for split, share in shares.items():
            if position < share:
                splits[split].append(entry)
                break
            position -= share
        else:
            splits[rest].append(entry)
    return splits


def required_path(config: TaskConfig) -> str:
    """Return task.path. Raises ValueError if it has no value."""
    if not config.path:
        raise ValueError(
            f"task={config.name} needs task.path: a file or folder of rows, or "
            "hf://datasets/ID@COMMIT"
        )
    return config.path


def _decontaminate(splits: Splits) -> tuple[Splits, list[dict[str, object]]]:
    """Return the splits without near-duplicates, and the pairs that were found.

    The problem in the earlier one of SPLITS is removed, so test stays whole.
    """
    kept: Splits = {SPLITS[-1]: splits[SPLITS[-1]]}
    found: list[dict[str, object]] = []
    for split in reversed(SPLITS[:-1]):
        split_of = {entry.name: later for later, entries in kept.items() for entry in entries}
        pairs = _duplicates(splits[split], [entry for later in kept.values() for entry in later])
        found += [
            {
                "split": split,
                "problem": pair["train"],
                "other_split": split_of[str(pair["test"])],
                "other_problem": pair["test"],
                "similarity": pair["similarity"],
                "containment": pair["containment"],
            }
            for pair in pairs
        ]
        removed = {pair["train"] for pair in pairs}
        kept[split] = [entry for entry in splits[split] if entry.name not in removed]
    return kept, found


def _duplicates(train: Sequence[Entry], test: Sequence[Entry]) -> list[dict[str, object]]:
    """Return the near-duplicate pairs, computed once and cached on disk."""
    contents = [[(entry.name, entry.digest) for entry in split] for split in (train, test)]
    code = code_digest("envs.tasks.near_duplicates")
    key = hashlib.sha256(repr((code, contents)).encode()).hexdigest()[:16]
    file = cache_root() / "pairs" / f"{key}.json"
    if file.exists():
        return json.loads(file.read_text())
    columns = (TextColumn("comparing statements"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bar = progress.add_task("", total=len(train))
        pairs = similar_pairs(train, test, lambda done: progress.update(bar, completed=done))
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(pairs))
    return pairs


def _first(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Return at most `count` entries, in an order that depends on their statements alone."""
    return sorted(entries, key=lambda entry: (entry.split_position, entry.name))[:count]
