"""What a run says of its task: which problems, and what a prompt and a response may be."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import NonNegativeInt, PositiveInt

from envs.reward import RewardConfig


@dataclass
class FilterConfig:
    """Keep problems that have one of the values, in either case; an empty list keeps all."""

    difficulty: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


@dataclass
class FilesConfig:
    """Which files of a data set hold each split, as patterns like data/train-*.parquet."""

    train: str | None = None
    validation: str | None = None
    test: str | None = None


@dataclass
class FieldsConfig:
    """Which columns of one's own rows hold what; the first three are needed.

    A column inside another is written with dots, e.g. tests.input.
    """

    statement: str | None = None
    inputs: str | None = None  # a list of texts, or the JSON of one
    outputs: str | None = None
    sample_inputs: str | None = None  # the tests that the prompt shows
    sample_outputs: str | None = None
    solutions: str | None = None  # correct programs, a list
    incorrect_solutions: str | None = None
    name: str | None = None
    fn_name: str | None = None  # call-based: inputs hold argument lists, outputs returned values
    starter_code: str | None = None
    time_limit: str | None = None  # seconds, or a text like "500 ms"
    memory_limit: str | None = None  # MiB, or a text like "1 GB"
    difficulty: str | None = None
    tags: str | None = None
    source: str | None = None


@dataclass
class TaskConfig:
    """Where problems come from: from `make`, or from `path`, each row through `rows`.

    Sizes are upper limits: a split takes so many of its problems, or all where it has fewer.
    """

    name: str = "mini"
    make: str | None = None  # module.function, from this configuration to a Task: made problems
    rows: str | None = None  # module.function, from a row and a name to a Problem: a data set
    # the data set's rows: a .jsonl, .parquet or .arrow file, a folder with files of each split, or
    # hf://datasets/ID@COMMIT, of which `files` names those that hold the splits
    path: str | None = None
    files: FilesConfig = field(default_factory=FilesConfig)
    fields: FieldsConfig = field(default_factory=FieldsConfig)  # of task=own
    # where the test split comes from other rows; rows and files are then the same if not given
    test_path: str | None = None
    test_rows: str | None = None
    test_files: FilesConfig | None = None
    prompt: str | None = None  # a Jinja template of one's own, as those in conf/prompt/
    # module.Class, makes an envs.environment.Environment; null: programs, run in a sandbox
    environment: str | None = None
    filter: FilterConfig = field(default_factory=FilterConfig)
    quality: str | None = None  # a file of `python -m envs.validate`: keep what it calls good
    train_problems: PositiveInt = 512
    validation_problems: PositiveInt = 60
    test_problems: PositiveInt = 120
    max_tests: PositiveInt = 40  # of a problem; which ones are kept is drawn from its statement
    max_test_bytes: PositiveInt = 4_000_000  # of a problem's tests in all, inputs and outputs
    decontaminate: bool = True  # take problems out of train whose statement stands in test too
    few_shot: NonNegativeInt = (
        0  # solved problems of the train split that are shown before every problem
    )
    chat: bool = True  # prompts go through the model's chat template; an error where it has none
    # longer prompts are dropped and counted; null: experiments/config/resolve_defaults.py says by the device
    max_prompt_tokens: PositiveInt | None = 256
    max_response_tokens: PositiveInt | None = 64  # null: as above
    reward: RewardConfig = field(default_factory=RewardConfig)
