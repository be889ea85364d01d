"""Problems become prompts: the task's text through the model's chat template, in tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.problem import Problem
from envs.tasks.config import TaskConfig
from experiments.errors import UserError
from experiments.samples import PromptedProblem


def encode_prompts(
    problems: Sequence[Problem],
    text_of: Callable[[Problem], str],
    tokenizer: object,
    config: TaskConfig,
) -> tuple[list[PromptedProblem], int]:
    """The problems whose prompt fits in task.max_prompt_tokens, and how many did not."""
    if config.chat and not tokenizer.chat_template:
        raise UserError(
            "the model's tokenizer has no chat template, which task.chat=true needs; choose an "
            "instruct model, or set task.chat=false for plain prompts"
        )
    prompts = [
        PromptedProblem(problem, tuple(_encode(text_of(problem), tokenizer, config.chat)))
        for problem in problems
    ]
    kept = [p for p in prompts if 2 <= len(p.tokens) <= config.max_prompt_tokens]
    return kept, len(prompts) - len(kept)


def _encode(text: str, tokenizer: object, chat: bool) -> list[int]:
    if not chat:
        return tokenizer(text)["input_ids"]
    message = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
