"""What a run says of its task: which problems, and what a prompt and a response may be."""

from __future__ import annotations

from dataclasses import dataclass, field

from envs.reward import RewardConfig


@dataclass
class FilterConfig:
    """Keep problems that have one of the values, in either case; an empty list keeps all."""

    difficulty: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


@dataclass
class TaskConfig:
    """Sizes are upper limits: a split takes so many of its problems, or all where it has fewer."""

    name: str = "mini"  # a name in envs.tasks
    # rows of a public data set: a .jsonl, .parquet or .arrow file, a folder with files of each
    # split, or hf://datasets/ID@COMMIT
    path: str | None = None
    test_path: str | None = None  # where the test split comes from another data set: its rows
    filter: FilterConfig = field(default_factory=FilterConfig)
    quality: str | None = None  # a file of `python -m envs.validate`: keep what it calls good
    train_problems: int = 512
    validation_problems: int = 60
    test_problems: int = 120
    max_tests: int = 40  # of a problem; which ones are kept is drawn from its statement
    max_test_bytes: int = 4_000_000  # of a problem's tests in all, inputs and outputs
    decontaminate: bool = True  # take problems out of train whose statement stands in test too
    few_shot: int = 0  # solved problems of the train split that are shown before every problem
    chat: bool = True  # prompts go through the model's chat template; an error where it has none
    # longer prompts are dropped and counted; null: experiments/picks.py says by the device
    max_prompt_tokens: int | None = 256
    max_response_tokens: int | None = 64  # null: as above
    reward: RewardConfig = field(default_factory=RewardConfig)
