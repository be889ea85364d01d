"""Prompts as tokens, and facts of their problems for run.json and the screen.

A prompt is the task's text of a problem in the model's chat template. No facts are judged here:
cheap programs' outputs are compared when a data set is prepared, and error rates are those that
`python -m envs.validate` found on the same problems with the same judge.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from envs.caching import cache_root
from envs.judge.testlib import CompilerMissing, find_toolchain
from envs.problem import Problem
from envs.tasks.stored import StoredProblems, checker_languages, content_digests, strengths
from envs.tasks.strength import cheap_earnings, earnings_line
from envs.tasks.task import Task, TaskConfig
from envs.validate import known_rates
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.sample import PromptedProblem


@dataclass(frozen=True)
class Prompts(Sequence[PromptedProblem]):
    """Prompts of the problems at the indices `kept`. A problem is read from its store on access."""

    problems: Sequence[Problem]
    kept: list[int]
    ids: np.ndarray  # (tokens of all prompts,) int32
    ends: np.ndarray  # (problems,) the end of each problem's tokens in `ids`

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def shortest(self) -> int:
        """The length of the shortest prompt, kept or not."""
        return min(end - start for start, end in zip([0, *self.ends], self.ends, strict=False))

    @property
    def digest(self) -> str:
        """16 hex digits over the tokens of all prompts, and which of them are kept."""
        sha = hashlib.sha256(repr((self.kept, self.ends.tolist())).encode())
        sha.update(self.ids.tobytes())
        return sha.hexdigest()[:16]

    @property
    def kept_problems(self) -> Sequence[Problem]:
        """The problems of the prompts; stored ones are not read."""
        if isinstance(self.problems, StoredProblems):
            return StoredProblems([self.problems.entries[row] for row in self.kept])
        return [self.problems[row] for row in self.kept]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = self.kept[index]
        start = self.ends[row - 1] if row else 0
        tokens = self.ids[start : self.ends[row]].tolist()
        return PromptedProblem(self.problems[row], tuple(tokens))


def prompts_of(
    split: str, task: Task, tokenizer: PreTrainedTokenizerBase, config: RunConfig, needed: bool
) -> Prompts:
    """Encode a split's prompts, and count those over the limit as left out.

    Raises UserError if some are `needed` and none is left.
    """
    problems, chat_args = getattr(task, split), config.model.chat_args
    prompts, dropped = encode_prompts(problems, task, tokenizer, config.task, chat_args)
    if dropped:
        limit = config.task.max_prompt_tokens
        task.left_out[f"prompt over task.max_prompt_tokens={limit}"] += dropped
    if needed and not prompts:
        raise UserError(_empty_split(split, prompts, task, config))
    return prompts


def encode_prompts(
    problems: Sequence[Problem],
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    config: TaskConfig,
    chat_args: Mapping[str, Any],
) -> tuple[Prompts, int]:
    """Return the prompts within task.max_prompt_tokens, and how many are longer.

    `chat_args` go to the model's chat template. Raises UserError.
    """
    if config.chat and not tokenizer.chat_template:
        raise UserError(
            "the model's tokenizer has no chat template, which task.chat=true needs; choose an "
            "instruct model, or set task.chat=false for plain prompts"
        )
    shots = task.shots()
    encode = partial(_encode, tokenizer, shots, chat_args if config.chat else None)
    cache_file = None  # of a prepared data set
    if isinstance(problems, StoredProblems) and isinstance(tokenizer, PreTrainedTokenizerFast):
        settings = (task.prompt_digest, config.chat, shots, sorted(chat_args.items()))
        vocabulary = tokenizer.backend_tokenizer.to_str()
        key = repr((problems.digest, settings, tokenizer.chat_template, vocabulary))
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        cache_file = cache_root() / "prompts" / f"{digest}.npz"
    if cache_file is not None and cache_file.exists():
        with np.load(cache_file) as arrays:
            ids, ends = arrays["ids"], arrays["ends"]
    else:
        light = problems.without_tests() if isinstance(problems, StoredProblems) else problems
        try:
            texts = [task.prompt(problem) for problem in light]
        except ValueError as error:  # of a template of the user's
            raise UserError(str(error)) from error
        rows = [np.asarray(encode(text), dtype=np.int32) for text in texts]
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        if cache_file is not None:
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            temporary = cache_file.with_suffix(f".{os.getpid()}.npz")
            np.savez(temporary, ids=ids, ends=ends)
            temporary.replace(cache_file)
    lengths = np.diff(ends, prepend=0)
    kept = np.flatnonzero((lengths >= 2) & (lengths <= config.max_prompt_tokens)).tolist()
    return Prompts(problems, kept, ids, ends), len(problems) - len(kept)


def _encode(
    tokenizer: PreTrainedTokenizerBase,
    shots: Sequence[tuple[str, str]],
    chat_args: Mapping[str, Any] | None,
    text: str,
) -> list[int]:
    """Encode a prompt, in the chat template unless `chat_args` is None."""
    texts = [*itertools.chain.from_iterable(shots), text]
    if chat_args is None:
        return tokenizer("\n\n".join(texts))["input_ids"]
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, texts, strict=False)]
    try:
        encoded: Any = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, **chat_args
        )
    except Exception as error:  # a template may raise anything
        folder = Path(tokenizer.name_or_path)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(
            f"model.path={folder}: the chat template: {reason}; mend it, or set "
            "task.chat=false for plain prompts"
        ) from error
    return encoded["input_ids"]


# Facts of problems.


def problem_facts(
    config: RunConfig, problems: Mapping[str, Sequence[Problem]], judge_version: str
) -> dict[str, Any]:
    """Return `cheap_programs`, `judge_errors` and `checker_programs` by use ("train", "eval").

    Nothing for a task whose responses are no programs. Raises UserError if checker programs cannot
    be compiled here.
    """
    if config.task.environment is not None:
        return {}
    languages = {use: dict(Counter(checker_languages(some))) for use, some in problems.items()}
    if any("testlib" in found for found in languages.values()):
        try:
            find_toolchain(config.judge.testlib).require()
        except CompilerMissing as error:
            raise UserError(str(error)) from error
    digests = {use: content_digests(some) for use, some in problems.items()}
    return {
        "cheap_programs": {use: cheap_earnings(strengths(some)) for use, some in problems.items()},
        "judge_errors": {use: known_rates(some, judge_version) for use, some in digests.items()},
    } | ({"checker_programs": languages} if any(languages.values()) else {})


def problem_line(task: Task, train: int, evaluated: int, facts: dict[str, Any], batch: int) -> str:
    """Return a line on the problems: their numbers, those left out and why, cheap programs.

    `batch`: problems of a batch; 0 if none is trained on.
    """
    more = f", fewer than train.prompts={batch}, so a batch has some more than once"
    text = f"{train} for training{more * (train < batch)}, {evaluated} for evaluation"
    if task.rows_read:
        text += f", of {task.rows_read} rows"
    if task.left_out:
        text += f"; left out: {left_out_line(task)}"
    text += "".join(f"; {reason} {count}" for reason, count in task.changed.items())
    earnings = facts.get("cheap_programs", {}).get("train")
    if earnings and (line := earnings_line(earnings)):
        text += f"; {line}"
    return text


def left_out_line(task: Task) -> str:
    """Return the reasons with their counts, and with the first row of those that rows gave."""
    first = task.first_left_out
    return ", ".join(
        f"{reason} {count}" + (f" (first: {first[reason]})" if reason in first else "")
        for reason, count in task.left_out.most_common()
    )


def _empty_split(split: str, prompts: Prompts, task: Task, config: RunConfig) -> str:
    """Say that a split is empty: how many problems others have, and what was left out."""
    message = f"task={config.task.name}: the {split} split is empty"
    if len(prompts.problems):
        limit = config.task.max_prompt_tokens
        return (
            f"{message}: all of its prompts are over task.max_prompt_tokens={limit}; the shortest "
            f"has {prompts.shortest} tokens"
        )
    counts = ", ".join(f"{name} {len(some)}" for name, some in task.splits().items())
    message += f" (problems by split: {counts}); add rows, or choose another eval.split"
    return message + (f"; left out: {left_out_line(task)}" if task.left_out else "")
