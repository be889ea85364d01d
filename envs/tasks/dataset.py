"""Data sets as tasks: TACO, CodeContests, the paper's combination of the two, your own rows.

The problems of a single file are split by a hash of their statements. A folder or the hub brings
the data set's own splits; its validation split is halved into tune and choose by the same hash,
unless choose has files of its own. The keys of the task choose problems by what their rows say.
Problems that are left out are counted by reason.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import re
import shlex
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from envs.caching import cache_root, replace_file
from envs.command_line import load_function
from envs.judge.extract import as_response
from envs.problem import Problem
from envs.tasks import rows
from envs.tasks.prompts import DefaultPrompt
from envs.tasks.rows import RowFile, SizeLimits, converted, find_files, load_converter, watched
from envs.tasks.stored import Entry, StoredProblems
from envs.tasks.task import SPLITS, Task, TaskConfig, task_config

FILE_SHARES = {"test": 0.2, "tune": 0.1, "choose": 0.1}  # of a single file's problems; train: rest
TRAIN_SHARES = {"tune": 0.02, "choose": 0.02}  # of train, if a data set has no validation split
TUNE_SHARES = {"tune": 0.02}  # of train, if only choose has files of its own
VALIDATION_SHARES = {"tune": 0.5}  # of validation; choose: the rest
BUNDLED_LOADERS = "envs.tasks.loaders."
PUBLISHED_SPLITS = ("train", "validation", "test")
IN_NO_SPLIT = "stands in no published split"  # why a problem is left out
IN_ANOTHER_SPLIT = "stands in another split too"  # why a problem is left out
TRAIN_ONLY = " (of train only)"  # end of a reason that does not hold for evaluation
SIMILARITY = 0.5  # Jaccard similarity of word 5-grams from which two statements are duplicates
CONTAINMENT = 0.7  # share of the smaller set's 5-grams in the larger one, likewise
MIN_CONTAINED = 16  # 5-grams of a statement that counts as contained: 20 words
_GRAM_WORDS = 5
_SAMPLES = re.compile(  # where the prose ends and the examples begin, in the usual layouts
    r"\n\W*(?:sample )?(?:examples?|inputs?|sample inputs?)\W*\d*\W*\n(?=\W*\S+.*\d)", re.IGNORECASE
)
ROOT = Path(__file__).resolve().parents[2]  # where a table that comes with the project is

Splits = dict[str, list[Entry]]


def open_dataset(config: TaskConfig) -> Task:
    """Open the task of a data set. Raises ValueError or OSError naming the wrong key."""
    splits = Splits({split: [] for split in SPLITS})
    parts = data_sets(config)
    readers = [DataSet(part) for part in parts]
    for reader in readers:
        read = reader.splits()
        splits = {split: entries + read[split] for split, entries in splits.items()}
    counts = Counter(entry.name for entries in splits.values() for entry in entries)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(
            f"task.parts: {len(twice)} problems, such as {twice[0]}, are in several parts of "
            f"task={config.name}; name each data set once"
        )
    left_out = sum((reader.left_out for reader in readers), Counter[str]())
    duplicates: list[dict[str, object]] = []
    if config.decontaminate:
        splits, duplicates = _decontaminated(splits)
        left_out[IN_ANOTHER_SPLIT] += len({pair["problem"] for pair in duplicates})
    if config.environment is None and config.min_hidden_tests:
        # a table of the statement's samples, or one constant, would earn the others' reward
        weak = [entry.strength.weakness(config.min_hidden_tests) for entry in splits["train"]]
        left_out.update(reason + TRAIN_ONLY for reason in weak if reason)
        strong = zip(splits["train"], weak, strict=True)
        splits["train"] = [entry for entry, reason in strong if reason is None]
    problems: dict[str, Any] = {}
    for split in SPLITS:  # in an order that depends on the statements alone
        ordered = sorted(splits[split], key=lambda entry: (entry.split_position, entry.name))
        problems[split] = StoredProblems(ordered[: getattr(config, f"{split}_problems")])
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
        changed=sum((reader.changed for reader in readers), Counter[str]()),
        first_left_out=dict(ChainMap(*(reader.first_left_out for reader in readers))),
        split_shares=readers[0].split_shares if len(readers) == 1 else {},
        decontaminated=duplicates,
    )


def every_problem(config: TaskConfig, skipped: Counter[str]) -> StoredProblems:
    """Return all problems of task.path, also those that no run uses, that the task's keys choose.

    Rows without a problem are counted in `skipped` by reason and the first such row, and so are
    problems that differ from their row.
    """
    data_set = DataSet(config)
    files = [file for found in data_set.files.values() for file in found]
    entries = data_set.read(files, alone=len(files) == 1, unusable=True)
    data_set.check_keys()
    for reason, count in (data_set.left_out + data_set.changed).items():
        first = data_set.first_left_out.get(reason)
        skipped[f"{reason} (first: {first})" if first else reason] += count
    return StoredProblems(entries)


def data_sets(config: TaskConfig) -> list[TaskConfig]:
    """Return the configurations of the data sets in `parts`, or the one of a task without parts.

    Raises ValueError naming the part that is wrong.
    """
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


def check_rows(config: TaskConfig) -> None:
    """Raise ValueError or OSError for missing local files of rows, and columns that none has."""
    for part in data_sets(config):
        if part.rows is not None and "://" not in (part.path or ""):
            reader = DataSet(part)
            files = [file for found in reader.files.values() for file in found]
            rows.check_columns(reader.converter.fields, files[0], files)


def has_own_samples(parts: Sequence[TaskConfig]) -> bool:
    """Return whether a user's own rows may name samples: by a column, or in a loader of theirs."""
    return any(
        part.fields.sample_inputs or (part.rows and not part.rows.startswith(BUNDLED_LOADERS))
        for part in parts
    )


class DataSet:
    """Reads the files of one data set, chooses problems, and counts those that are left out."""

    def __init__(self, config: TaskConfig) -> None:
        """Find the files. Raises ValueError or OSError naming the wrong key."""
        if not config.path:
            raise ValueError(
                f"task={config.name} needs task.path: a file or folder of rows, or "
                "hf://datasets/ID@COMMIT"
            )
        self.config = config
        self.converter = load_converter(config.rows, config.fields, "task.rows")
        self.test_converter = self.converter  # of task.test_path
        if config.test_rows is not None:
            key = "task.test_rows"
            self.test_converter = load_converter(config.test_rows, config.fields, key)
        self.rules = _rules(config)
        self.files = find_files(config.path, "task.path", config.files)
        self.rows = 0
        self.left_out = Counter[str]()
        self.changed = Counter[str]()
        self.first_left_out: dict[str, str] = {}
        self.split_shares: dict[str, float] = {}
        self._found: list[Entry] = []  # before any was left out

    def read(
        self, files: Sequence[RowFile], alone: bool, unusable: bool = False, test: bool = False
    ) -> list[Entry]:
        """Return the chosen problems of some files, with `unusable` also those that no run uses.

        `test`: the files are those of task.test_path.
        """
        data_set = [file for found in self.files.values() for file in found]
        data_set = list(dict.fromkeys([*data_set, *files]))
        limits = SizeLimits(self.config.max_tests, self.config.max_test_bytes)
        converter = self.test_converter if test else self.converter
        found = converted(files, converter, limits, alone, data_set)
        self.rows += found.rows
        self.left_out += found.skipped
        self.changed += found.changed
        self.first_left_out = found.first_skipped | self.first_left_out
        self._found += found.entries
        kept = []
        for entry in found.entries:
            reason = None if unusable else entry.left_out
            reason = reason or next(
                (why for rule in self.rules if (why := rule.mismatch(entry))), None
            )
            if reason:
                self.left_out[reason] += 1
            else:
                kept.append(entry)
        return kept

    def splits(self) -> Splits:
        """Return the chosen problems of each split.

        A single file is divided. Tune and choose are halves of validation, or else cut from train.
        A folder may have choose as files of its own; then tune is validation. With task.test_path
        the test split comes from that second data set; then a single file is used whole.
        """
        config = self.config
        if config.test_path is None:
            splits = self._own_splits(self.files)
        else:
            test_files = config.test_files or config.files
            found = find_files(config.test_path, "task.test_path", test_files)
            files = self.files if "all" in self.files else self.files | {"test": []}
            splits = self._own_splits(files)
            splits["train"] += splits["test"]  # of a single file
            splits["test"] = self.read(found.get("all") or found["test"], alone=False, test=True)
        self.check_keys()
        return splits

    def _own_splits(self, files: dict[str, list[RowFile]]) -> Splits:
        if self.config.evaluation_only:
            return self._test_only(files)
        if "all" in files and not self.config.split_of:
            return self._divide(self.read(files["all"], alone=True), FILE_SHARES, "train")
        if "all" in files:
            splits = self._published(self.read(files["all"], alone=True))
        else:
            splits = {split: self.read(found, alone=False) for split, found in files.items()}
        validation, choose = splits.pop("validation"), splits.pop("choose", [])
        if files.get("choose"):
            splits["choose"] = choose
            if files.get("validation"):
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

    def _test_only(self, files: dict[str, list[RowFile]]) -> Splits:
        """Return all rows as the test split. Raises ValueError for rows of other splits."""
        for split in ("train", "validation", "choose"):
            if files.get(split):
                raise ValueError(
                    f"task={self.config.name} is for evaluation only "
                    f"({self.config.evaluation_only}), but {files[split][0].label} holds its "
                    f"{split} split; give a single file, or a folder with test* files alone"
                )
        test = self.read(files.get("all") or files["test"], alone="all" in files)
        return {"train": [], "tune": [], "choose": [], "test": test}

    def _divide(self, entries: Sequence[Entry], shares: dict[str, float], rest: str) -> Splits:
        """Split by a hash of the statement: a problem lands in the same split in every file."""
        self.split_shares = shares | {rest: 1 - sum(shares.values())}
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

    def check_keys(self) -> None:
        """Raise ValueError for a key whose field no row has, and for an unknown difficulty.

        The key would silently leave nothing.
        """
        for rule in self.rules:
            unstated = all(getattr(entry, rule.field) in ("", None) for entry in self._found)
            if rule.stated and self._found and unstated:
                raise ValueError(
                    f"task.{rule.key}={rule.value}: no row of task={self.config.name} has a "
                    f"{rule.field}; leave the key out"
                )
        known = {entry.difficulty.lower(): entry.difficulty for entry in self._found}
        for text in self.config.difficulty or ():
            if known and text.lower() not in known:
                near = difflib.get_close_matches(text.lower(), filter(None, known), 6, cutoff=0.0)
                raise ValueError(
                    f"task.difficulty={text}: no row of task={self.config.name} has it; the "
                    f"nearest of its difficulties: {', '.join(known[each] for each in near)}"
                )


@dataclass(frozen=True)
class _Rule:
    """A key of the task that chooses problems, with its value, and the field that it reads."""

    key: str
    value: object
    field: str
    keeps: Callable[[Any], bool]
    reason: str = ""  # why other problems are left out; "": not of the key
    stated: bool = False  # a problem without the field is left out too

    def mismatch(self, entry: Entry) -> str | None:
        """Return why a problem is left out, or None."""
        value = getattr(entry, self.field)
        if self.stated and value in ("", None):
            return f"no {self.field}, which task.{self.key} reads"
        return None if self.keeps(value) else self.reason or f"not of task.{self.key}"


def _rules(config: TaskConfig) -> list[_Rule]:
    """Return the rules that the task's keys give. Raises ValueError if they leave nothing."""
    c, rules = config, []
    bounds: tuple[tuple[Any, Any, str, str], ...] = (
        (c.min_rating, c.max_rating, "min_rating", "max_rating"),
        (c.date_from, c.date_to, "from", "to"),
    )
    for low, high, low_key, high_key in bounds:
        if low is not None and high is not None and low > high:
            keys = f"task.{low_key}={low} with task.{high_key}={high}"
            raise ValueError(f"{keys}: nothing lies between; swap the two")
    if not c.checkers:
        reason = "has a checker program (task.checkers=false)"
        rules.append(_Rule("checkers", False, "checker_language", lambda it: not it, reason))
    for key, values in asdict(c.filter).items():
        if values:
            rules.append(_Rule(f"filter.{key}", values, key, partial(_is_one_of, values)))
    if c.quality:
        good, reason = good_statements(c.quality), "not good by task.quality"
        rules.append(_Rule("quality", c.quality, "statement_hash", good.__contains__, reason))
    stated: tuple[tuple[str, Any, str, Callable[[Any], bool]], ...] = (
        ("difficulty", c.difficulty, "difficulty", partial(_is_one_of, c.difficulty or ())),
        ("min_rating", c.min_rating, "rating", lambda rating: rating >= c.min_rating),
        ("max_rating", c.max_rating, "rating", lambda rating: rating <= c.max_rating),
        ("from", c.date_from, "date", lambda date: date >= c.date_from),
        ("to", c.date_to, "date", lambda date: date <= c.date_to),
    )
    rules += [_Rule(*given, stated=True) for given in stated if given[1] is not None]
    return rules


def _is_one_of(values: Iterable[str], stated: str | tuple[str, ...]) -> bool:
    """Return whether a text, or one of several, is among `values`; case does not matter."""
    texts = (stated,) if isinstance(stated, str) else stated
    return not {value.lower() for value in values}.isdisjoint(text.lower() for text in texts)


def good_statements(file: str) -> set[str]:
    """Read the statement hashes of good problems from a table of `python -m envs.validate`."""
    import pandas as pd

    path = next((path for path in (Path(file), ROOT / file) if path.is_file()), None)
    if path is None:
        raise ValueError(
            f"task.quality={file}: no such file; `python -m envs.validate … quality=FILE` makes one"
        )
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"task.quality={file}: it must end in .parquet or .csv")
    try:
        if path.suffix == ".csv":  # a hash of digits alone is not a number
            table = pd.read_csv(path, dtype={"statement": str})
        else:
            table = pd.read_parquet(path, columns=["statement", "good"])
        return set(table["statement"][table["good"].astype(bool)])
    except (KeyError, ValueError) as error:
        raise ValueError(f"task.quality={file}: not a file of envs.validate: {error}") from error


def _decontaminated(splits: Splits) -> tuple[Splits, list[dict[str, object]]]:
    """Return the splits without near-duplicates, and the pairs that were found.

    The problem in the earlier one of SPLITS is removed, so test stays whole.
    """
    kept: Splits = {SPLITS[-1]: splits[SPLITS[-1]]}
    found: list[dict[str, object]] = []
    for split in reversed(SPLITS[:-1]):
        split_of = {entry.name: later for later, entries in kept.items() for entry in entries}
        pairs = _duplicates(splits[split], [entry for later in kept.values() for entry in later])
        for pair in pairs:
            other_split = split_of[str(pair["other_problem"])]
            place = {"split": split, "problem": pair["problem"], "other_split": other_split}
            found.append(place | pair)
        removed = {pair["problem"] for pair in pairs}
        kept[split] = [entry for entry in splits[split] if entry.name not in removed]
    return kept, found


def _duplicates(train: Sequence[Entry], test: Sequence[Entry]) -> list[dict[str, object]]:
    """Return the near-duplicate pairs, computed once and cached on disk."""
    contents = [[(entry.name, entry.digest) for entry in split] for split in (train, test)]
    code = Path(__file__).read_bytes()
    key = hashlib.sha256(repr((code, contents)).encode()).hexdigest()[:16]
    file = cache_root() / "pairs" / f"{key}.json"
    if file.exists():
        return json.loads(file.read_text())
    pairs = similar_pairs(watched(train, "comparing statements"), test)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(pairs))
    return pairs


def similar_pairs(
    train: Iterable[Entry | Problem], test: Sequence[Entry | Problem]
) -> list[dict[str, object]]:
    """Return problem, other_problem (of test), similarity, containment of each near-duplicate pair.

    Statements are compared by their word 5-grams: by the Jaccard similarity of two sets, which
    finds rewordings, and by the share of the smaller set that the larger one contains, which finds
    a statement inside a longer one. The most similar come first.
    """
    sizes: list[int] = []
    holders: dict[str, list[int]] = defaultdict(list)  # 5-gram → the statements of test with it
    for number, problem in enumerate(test):
        grams = shingles(problem.statement)
        sizes.append(len(grams))
        for gram in grams:
            holders[gram].append(number)
    pairs: list[tuple[str, str, float, float]] = []
    for problem in train:
        grams = shingles(problem.statement)
        held = (holders[gram] for gram in grams if gram in holders)
        for number, shared in Counter(itertools.chain.from_iterable(held)).items():
            smaller, larger = sorted((len(grams), sizes[number]))
            similarity, contained = shared / (smaller + larger - shared), shared / smaller
            long_enough = smaller >= MIN_CONTAINED
            if similarity >= SIMILARITY or (long_enough and contained >= CONTAINMENT):
                other = test[number].name
                pairs.append((problem.name, other, round(similarity, 3), round(contained, 3)))
    pairs.sort(key=lambda pair: (-pair[2], -pair[3], *pair[:2]))
    keys = ("problem", "other_problem", "similarity", "containment")
    return [dict(zip(keys, pair, strict=True)) for pair in pairs]


def shingles(statement: str) -> frozenset[str]:
    """Return the word 5-grams of a statement's prose, in lower case; a shorter text is one gram."""
    prose = _SAMPLES.split(statement, maxsplit=1)[0]
    words = re.findall(r"\w+", prose.lower()) or re.findall(r"\w+", statement.lower())
    last = max(1, len(words) - _GRAM_WORDS + 1)
    if not words:
        return frozenset()
    return frozenset(" ".join(words[i : i + _GRAM_WORDS]) for i in range(last))
