"""Samples: responses on their way to the loss, with origin, verdict and reward; and their seeds.

Random streams have names: no draw depends on how many draws came before it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig, RewardError, length_penalty, reward
from experiments.errors import UserError


@dataclass(frozen=True, slots=True)
class PromptedProblem:
    """A problem with its prompt in tokens."""

    problem: Problem
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """One response of an engine, EOS included where there is one."""

    tokens: tuple[int, ...]
    logps: tuple[float, ...]  # of the distribution that was sampled from
    # The policy's mean entropy over the response's tokens, in nats, at temperature 1 and without
    # top-p; NaN: unknown
    entropy: float
    truncated: bool  # max_tokens came before EOS
    version: int  # of the weights that generated it


@dataclass(frozen=True, slots=True)
class Origin:
    """The policy that generated a response, and when."""

    # policy: this run's; run: another run's; file: unknown
    source: Literal["policy", "reference", "dataset", "run", "file"]
    run: str | None = None  # the run folder's name, or the file's
    step: int | None = None  # the batch that it was generated for
    version: int | None = None  # optimiser steps that its weights had seen


@dataclass(frozen=True, slots=True)
class Turn:
    """An answer of a conversation, and the observation after it."""

    answer: int  # number of its tokens; 0: before a prefix that the response was given
    # tokens of the observation, or of that prefix; 0: the conversation ended with the answer
    observation: int = 0
    public: Judgement | None = None  # by the tests in the statement; None: the answer was the last
    text: str = ""  # of the observation


class PrefixValue(NamedTuple):
    """The Monte-Carlo value of the state after a response's first `cut` tokens."""

    cut: int
    mean: float
    error: float  # standard error of the mean; NaN: unknown


@dataclass(frozen=True, slots=True)
class Sample:
    """One judged response: an answer, or a conversation of answers and observations.

    The last answer of a conversation is judged. Observations stand among the tokens and are
    context: no loss reads them, or their log-probs. A prefix that the response continues, of a
    program or of another response, is the observation of a first turn without an answer.
    """

    prompt: PromptedProblem
    tokens: tuple[int, ...]
    logps: tuple[float, ...] | None  # rollout log-probs; None: offline, of an unknown policy
    judgement: Judgement
    reward: float | None  # None: infrastructure error, the sample is left out
    truncated: bool
    origin: Origin
    replayed: int | None = None  # its number in the replay buffer, if it comes from there
    turns: tuple[Turn, ...] = ()  # of a conversation; (): one answer
    values: tuple[PrefixValue, ...] = ()  # for algorithms that need them

    @property
    def own(self) -> list[bool] | None:
        """Whether the policy generated each token; None: all of them."""
        if not any(turn.observation for turn in self.turns):
            return None
        parts = ([True] * turn.answer + [False] * turn.observation for turn in self.turns)
        return [own for part in parts for own in part]

    @property
    def generated(self) -> int:
        """The number of tokens that the policy generated for it, in all answers."""
        return len(self.tokens) - sum(turn.observation for turn in self.turns)

    @property
    def length(self) -> int:
        """The number of its tokens without observations, with a prefix that it continues."""
        return response_length(len(self.tokens), self.turns)

    @property
    def offline(self) -> bool:
        return self.logps is None

    @property
    def fresh(self) -> bool:
        """Whether a policy generated it for the batch that it is in."""
        return not self.offline and self.replayed is None

    @property
    def accepted(self) -> bool:
        return self.judgement.verdict is Verdict.ACCEPTED


def response_length(tokens: int, turns: Sequence[Turn]) -> int:
    """Return `Sample.length` of a response of so many tokens."""
    return tokens - sum(turn.observation for turn in turns if turn.answer)


def rewarded_samples(
    prompts: Sequence[PromptedProblem],
    completions: Sequence[Completion],
    judgements: Sequence[Judgement],
    config: RewardConfig,
    origin: Origin,
    turns: Sequence[tuple[Turn, ...]] | None = None,
) -> list[Sample]:
    """Return the samples of judged completions, one prompt each.

    `origin` lacks the version, which each completion carries. `turns`: of conversations.
    """
    turns = turns or [()] * len(prompts)
    samples = []
    for prompt, c, judgement, its in zip(prompts, completions, judgements, turns, strict=True):
        value = compute_reward(judgement, config, response_length(len(c.tokens), its))
        source = replace(origin, version=c.version)
        samples.append(
            Sample(prompt, c.tokens, c.logps, judgement, value, c.truncated, source, turns=its)
        )
    return samples


def compute_reward(judgement: Judgement, config: RewardConfig, tokens: int) -> float | None:
    """Return the reward of a response of `tokens`; None after an infrastructure error.

    Raises UserError if the reward function returns a value outside its range.
    """
    if judgement.verdict is Verdict.INFRA_ERROR:
        return None
    try:
        return reward(judgement, config) - length_penalty(tokens, config)
    except RewardError as error:
        raise UserError(str(error)) from error


def seed_for(*parts: object) -> int:
    """Return a 63-bit seed for a path of names and numbers, the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(*parts: object) -> random.Random:
    """Return a random generator for one purpose."""
    return random.Random(seed_for(*parts))
