"""Problems become prompts: the task's text through the model's chat template, in tokens."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from envs.cache_folder import cache_root
from envs.problem import Problem
from envs.tasks.config import TaskConfig
from envs.tasks.selection import StoredProblems
from envs.tasks.task import Task
from experiments.errors import UserError
from experiments.sample import PromptedProblem

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Prompts(Sequence[PromptedProblem]):
    """Prompts of the problems at `kept`; a problem is read from its store when it is asked for."""

    problems: Sequence[Problem]
    kept: list[int]
    ids: np.ndarray  # (tokens of all prompts,) int32
    ends: np.ndarray  # (problems,) where each one's tokens end in `ids`

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def shortest(self) -> int:
        """Tokens of the shortest prompt, whether it was kept or not."""
        return min(end - start for start, end in zip([0, *self.ends], self.ends, strict=False))

    def __getitem__(self, index: int) -> PromptedProblem:
        at = self.kept[index]
        start = self.ends[at - 1] if at else 0
        return PromptedProblem(self.problems[at], tuple(self.ids[start : self.ends[at]].tolist()))


def encode_prompts(
    problems: Sequence[Problem],
    task: Task,
    tokenizer: object,
    config: TaskConfig,
    chat_args: Mapping[str, Any],
) -> tuple[Prompts, int]:
    """The problems whose prompt fits in task.max_prompt_tokens, and how many did not.

    `chat_args` go to the model's chat template.
    """
    import numpy as np

    if config.chat and not tokenizer.chat_template:
        raise UserError(
            "the model's tokenizer has no chat template, which task.chat=true needs; choose an "
            "instruct model, or set task.chat=false for plain prompts"
        )
    shots = task.shots()
    encode = partial(_plain, tokenizer=tokenizer, shots=shots)
    if config.chat:
        encode = partial(_chat, tokenizer=tokenizer, shots=shots, chat_args=chat_args)
    settings = (task.prompt_digest, config.chat, shots, sorted(chat_args.items()))
    note = _note(problems, tokenizer, settings)
    if note is not None and note.exists():
        with np.load(note) as held:
            ids, ends = held["ids"], held["ends"]
    else:
        rows = list(_encoded(problems, task.prompt, encode))
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        if note is not None:
            _keep(note, ids, ends)
    lengths = np.diff(ends, prepend=0)
    kept = np.flatnonzero((lengths >= 2) & (lengths <= config.max_prompt_tokens)).tolist()
    return Prompts(problems, kept, ids, ends), len(problems) - len(kept)


def _encoded(
    problems: Sequence[Problem],
    text_of: Callable[[Problem], str],
    encode: Callable[[str], list[int]],
) -> Iterator[np.ndarray]:
    import numpy as np

    stored = isinstance(problems, StoredProblems)
    told = problems.without_tests() if stored else problems
    console = Console(stderr=True)
    shown = track(
        told,
        "encoding prompts",
        total=len(problems),
        console=console,
        transient=True,
        disable=not (stored and console.is_terminal),
    )
    for problem in shown:
        try:
            text = text_of(problem)
        except ValueError as error:
            raise UserError(str(error)) from error  # of a template of one's own
        yield np.asarray(encode(text), dtype=np.int32)


def _plain(text: str, tokenizer: object, shots: Sequence[tuple[str, str]]) -> list[int]:
    return tokenizer("\n\n".join([*itertools.chain.from_iterable(shots), text]))["input_ids"]


def _chat(
    text: str,
    tokenizer: object,
    shots: Sequence[tuple[str, str]],
    chat_args: Mapping[str, Any],
) -> list[int]:
    turns = [*itertools.chain.from_iterable(shots), text]
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, **chat_args)
    return encoded["input_ids"]


def _note(problems: Sequence[Problem], tokenizer: object, settings: object) -> Path | None:
    """Where the tokens of a prepared data set's prompts are kept; None for other problems."""
    if not isinstance(problems, StoredProblems) or not hasattr(tokenizer, "backend_tokenizer"):
        return None
    known = (
        problems.digest,
        settings,
        tokenizer.chat_template,
        tokenizer.backend_tokenizer.to_str(),
    )
    return cache_root() / "prompts" / f"{hashlib.sha256(repr(known).encode()).hexdigest()[:16]}.npz"


def _keep(note: Path, ids: np.ndarray, ends: np.ndarray) -> None:
    import numpy as np

    note.parent.mkdir(parents=True, exist_ok=True)
    temporary = note.with_suffix(f".{os.getpid()}.npz")
    np.savez(temporary, ids=ids, ends=ends)
    temporary.replace(note)
