"""The configuration group `task`, and a task: problems by split, and how a model is prompted."""

from __future__ import annotations

import datetime
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from omegaconf import OmegaConf
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt

from envs.command_line import composed, parse_values
from envs.problem import Problem
from envs.reward import RewardConfig


def _as_list(value: Any) -> Any:
    """Return a single value as a list of its text, so that task.difficulty=EASY needs no brackets.

    A number becomes a text: some data sets have numbers for difficulties.
    """
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    return [str(item) if isinstance(item, int) else item for item in items]


def _iso_date(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("write a date as YYYY-MM-DD") from None


IsoDate = Annotated[str, AfterValidator(_iso_date)]


@dataclass
class FilterConfig:
    """Keep problems that have one of the values, ignoring case; an empty list keeps all."""

    difficulty: list[str] = field(default_factory=list)  # keep problems of one of these
    source: list[str] = field(default_factory=list)  # keep problems from one of these
    tags: list[str] = field(default_factory=list)  # keep problems with one of these


@dataclass
class FilesConfig:
    """File patterns of each split of a data set, like data/train-*.parquet.

    Its validation split is halved into tune and choose.
    """

    train: str | None = None  # pattern of the train split's files
    validation: str | None = None  # pattern of the files that tune and choose share
    test: str | None = None  # pattern of the test split's files


@dataclass
class FieldsConfig:
    """Column names of your own rows for each field; the first three are required.

    A nested column is written with dots, e.g. tests.input; a list is entered item by item.
    """

    statement: str | None = None  # the problem in words
    inputs: str | None = None  # of the tests: a list of texts, or its JSON
    outputs: str | None = None  # expected, one for each input
    sample_inputs: str | None = None  # of the tests that the prompt shows
    sample_outputs: str | None = None  # of the tests that the prompt shows
    solutions: str | None = None  # correct programs, a list
    incorrect_solutions: str | None = None  # incorrect programs, a list
    name: str | None = None  # of the problem
    fn_name: str | None = None  # call-based: inputs are argument lists, outputs returned values
    starter_code: str | None = None  # that the program completes
    time_limit: str | None = None  # in seconds, or a text like "500 ms"
    memory_limit: str | None = None  # in MiB, or a text like "1 GB"
    difficulty: str | None = None  # a text, for task.difficulty
    tags: str | None = None  # a list of texts
    source: str | None = None  # where the problem comes from
    rating: str | None = None  # a whole number, like those of Codeforces
    date: str | None = None  # of the contest, a text that begins with YYYY-MM-DD
    checker: str | None = None  # the source of a checker program: Python, or C++ on testlib.h


@dataclass
class TaskConfig:
    """A task generates its problems with `make`, converts each row of `path` with `rows`, or joins
    the data sets in `parts`.

    Sizes of splits are upper limits: a smaller split is used whole.
    """

    # `from` is a word of Python: its field has another name, which config.yaml of a run shows
    __pydantic_config__ = ConfigDict(validate_by_name=True, validate_by_alias=True)

    name: str = "mini"  # in labels and tables; of a file in conf/task/: the file's name
    make: str | None = None  # module.function, from this configuration to a Task
    rows: str | None = None  # module.function, from a row and a name to a Problem
    # data sets that are joined, split by split: a file of conf/task/ each, and keys of its own, as
    # in "taco difficulty=[EASY] path=FILE"
    parts: list[str] = field(default_factory=list)
    # the rows: a file of .jsonl, .json, .csv, .parquet or .arrow, a folder with files of each
    # split, or hf://datasets/ID@COMMIT with the files of each split in `files`
    path: str | None = None
    files: FilesConfig = field(default_factory=FilesConfig)
    fields: FieldsConfig = field(default_factory=FieldsConfig)  # if `rows` maps columns
    # module.function, from a problem's name to its published split (train, validation, test), or to
    # null if it stands in none: of a single file. Null: a hash of each statement decides
    split_of: str | None = None
    test_path: str | None = None  # other rows for the test split
    test_rows: str | None = None  # as `rows`, of test_path; null: `rows`
    test_files: FilesConfig | None = None  # as `files`, of test_path; null: `files`
    license: str | None = None  # of the data set, as its page states it
    evaluation_only: str | None = None  # why no run may train on the rows; null: it may
    prompt: str | None = None  # your Jinja template, like those in conf/prompt/
    turns: PositiveInt = 1  # most answers of a conversation; one that passes the samples ends it
    # what is said of a failed answer: what the tests in the statement gave; that it is wrong; or
    # what they gave for another problem's program (a control)
    feedback: Literal["tests", "withheld", "foreign"] = "tests"
    max_observation_tokens: PositiveInt = 128  # of what is said of a failed answer
    feedback_prompt: str | None = None  # your Jinja template, like conf/prompt/feedback.jinja
    # module.Class of an envs.problem.Environment; null: programs, run in a sandbox
    environment: str | None = None
    filter: FilterConfig = field(default_factory=FilterConfig)
    # Keep problems by what their row says; a row that does not say it is left out. Null: all.
    difficulty: Annotated[list[str] | None, BeforeValidator(_as_list)] = None  # keep one of these
    min_rating: NonNegativeInt | None = None  # keep problems rated so or higher
    max_rating: NonNegativeInt | None = None  # keep problems rated so or lower
    # keep problems of contests on this day or later, YYYY-MM-DD
    date_from: Annotated[IsoDate | None, Field(alias="from")] = None
    # keep problems of contests on this day or earlier, YYYY-MM-DD
    date_to: Annotated[IsoDate | None, Field(alias="to")] = None
    # keep problems whose outputs are decided by a checker program, which the data set brings
    checkers: bool = True
    quality: str | None = None  # a table of `python -m envs.validate`: keep good problems
    train_problems: PositiveInt = 512  # at most, in the split that is trained on
    tune_problems: PositiveInt = 60  # at most, in the split for tuning
    choose_problems: PositiveInt = 120  # at most, in the split that evaluations use by default
    test_problems: PositiveInt = 200  # at most, in the split for final evaluations
    # Problems of the train split need so many tests that do not stand in the statement, and two
    # different outputs. 0: train on all. Other splits are not filtered, nor is `environment`.
    min_hidden_tests: NonNegativeInt = 2
    max_tests: PositiveInt = 40  # per problem; see envs/tasks/rows.py
    max_test_bytes: PositiveInt = 4_000_000  # per problem, inputs and outputs of all tests
    # remove near-duplicates of other splits' problems: from train first, from test never
    decontaminate: bool = True
    few_shot: NonNegativeInt = 0  # solved train problems shown before every prompt
    chat: bool = True  # use the model's chat template; an error if it has none
    # longer prompts are dropped and counted; null: by device
    max_prompt_tokens: PositiveInt | None = 256
    max_response_tokens: PositiveInt | None = 64  # of a response; null: by device
    reward: RewardConfig = field(default_factory=RewardConfig)


SPLITS = ("train", "tune", "choose", "test")


@dataclass(frozen=True)
class Task:
    """The problems of a run by split, and the format of prompts and responses.

    Hyperparameters are tuned on `tune`. Defaults and designs are chosen on `choose`. `test` is for
    the final evaluation of a study.
    """

    train: Sequence[Problem]
    tune: Sequence[Problem]
    choose: Sequence[Problem]
    test: Sequence[Problem]
    prompt: Callable[[Problem], str]  # the user message
    response: Callable[[str], str]  # turns an offline program into a response
    data_hash: str  # 16 hex digits over all problems, their programs and their prompts
    prompt_digest: str = ""  # of the template; "" if code builds the prompt
    examples: list[Problem] = field(default_factory=list)  # few-shot examples before every prompt
    rows_read: int = 0  # of a data set
    left_out: Counter[str] = field(default_factory=Counter)  # why rows gave no problem → how many
    changed: Counter[str] = field(default_factory=Counter)  # how kept problems differ from rows
    # of reasons that lie in the row: the first such row
    first_left_out: dict[str, str] = field(default_factory=dict)
    # share of each split that a hash of the statements divides; empty: the data set's own splits
    split_shares: dict[str, float] = field(default_factory=dict)
    # near-duplicates: split and problem, other_split and other_problem, similarity, containment
    decontaminated: list[dict[str, object]] = field(default_factory=list)

    def splits(self) -> dict[str, Sequence[Problem]]:
        """Return the problems by the name of their split."""
        return {split: getattr(self, split) for split in SPLITS}

    def shots(self) -> list[tuple[str, str]]:
        """Return (prompt, response) of each example; the response is its shortest right program."""
        return [(self.prompt(p), self.response(min(p.solutions, key=len))) for p in self.examples]


def data_hash(splits: Mapping[str, Sequence[Problem]], prompt: Callable[[Problem], str]) -> str:
    """Return 16 hex digits over generated problems, their programs and their prompts."""
    digest = hashlib.sha256()
    for problem in itertools.chain.from_iterable(splits.values()):
        content = (problem.name, prompt(problem), problem.hash)
        digest.update(repr((*content, problem.solutions, problem.incorrect_solutions)).encode())
    return digest.hexdigest()[:16]


def is_task_argument(argument: str) -> bool:
    """Return whether a word of a command line is task=NAME or task.KEY=VALUE."""
    return argument.lstrip("+").partition("=")[0].split(".")[0] == "task" and "=" in argument


def task_config(overrides: Sequence[str]) -> TaskConfig:
    """Compose the task configuration as `python run.py` would. Raises ValueError in one line."""
    return parse_values(TaskConfig, plain_task(overrides), "task")


def plain_task(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose the task configuration, unchecked. Raises ValueError in one line."""
    for override in overrides:
        if not is_task_argument(override):
            raise ValueError(f"{override!r}: write task=NAME or task.KEY=VALUE")
    return cast(dict[str, Any], OmegaConf.to_container(composed(overrides).task, resolve=True))
