"""A response on its way from whoever wrote it to the loss, and how one is judged and paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from envs.environment import Environment, Submission
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig, RewardError, length_penalty, reward
from experiments.errors import UserError

if TYPE_CHECKING:

    from experiments.engines.base import Completion


@dataclass(frozen=True, slots=True)
class PromptedProblem:
    """A problem with its prompt in tokens."""

    problem: Problem
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a response, and when."""

    # policy: that of this run; run: another run's; file: who knows
    source: Literal["policy", "reference", "dataset", "run", "file"]
    run: str | None = None  # the run folder's name, or the file's
    step: int | None = None  # the batch that it was written for
    version: int | None = None  # optimiser steps that the writer's weights had seen


@dataclass(frozen=True, slots=True)
class Sample:
    """One judged response. Offline ones have no log-probs: nobody knows who wrote them."""

    prompt: PromptedProblem
    tokens: tuple[int, ...]
    logps: tuple[float, ...] | None
    judgement: Judgement
    reward: float | None  # None: the judge itself failed, the sample is left out
    truncated: bool
    origin: Origin
    replayed: int | None = None  # its number in the replay store, where it comes from there

    @property
    def offline(self) -> bool:
        return self.logps is None

    @property
    def fresh(self) -> bool:
        """Written by a policy for the batch that it is in."""
        return not self.offline and self.replayed is None

    @property
    def accepted(self) -> bool:
        return self.judgement.verdict is Verdict.ACCEPTED


def judge_completions(
    prompts: Sequence[PromptedProblem],
    completions: Sequence[Completion],
    judge: Environment,
    tokenizer: object,
    config: RewardConfig,
    origin: Origin,
) -> list[Sample]:
    """Decode, judge and pay completions, one prompt each; their versions complete the origin."""
    if not completions:
        return []
    texts = texts_of(completions, tokenizer)
    judgements = judge.judge(
        [Submission(p.problem, text) for p, text in zip(prompts, texts, strict=True)]
    )
    return rewarded_samples(prompts, completions, judgements, config, origin)


def texts_of(completions: Sequence[Completion], tokenizer: object) -> list[str]:
    """What the judge reads; of one completion or more, since tokenizers make a text of none."""
    tokens = [list(completion.tokens) for completion in completions]
    return tokenizer.batch_decode(tokens, skip_special_tokens=True)


def rewarded_samples(
    prompts: Sequence[PromptedProblem],
    completions: Sequence[Completion],
    judgements: Sequence[Judgement],
    config: RewardConfig,
    origin: Origin,
) -> list[Sample]:
    """The samples of judged completions, one prompt each."""
    return [
        Sample(
            prompt,
            c.tokens,
            c.logps,
            judgement,
            compute_reward(judgement, config, len(c.tokens)),
            c.truncated,
            replace(origin, version=c.version),
        )
        for prompt, c, judgement in zip(prompts, completions, judgements, strict=True)
    ]


def compute_reward(judgement: Judgement, config: RewardConfig, tokens: int) -> float | None:
    """The reward of a response of `tokens`, or None where the judge failed: that is no reward."""
    if judgement.verdict is Verdict.INFRA_ERROR:
        return None
    try:
        return reward(judgement, config) - length_penalty(tokens, config)
    except RewardError as error:
        raise UserError(str(error)) from error
