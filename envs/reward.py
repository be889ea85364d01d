"""Rewards: from a judgement to the number that the policy is trained on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from envs.caching import code_digest
from envs.command_line import load_function
from envs.problem import Judgement, Verdict

KINDS = ("binary", "fraction", "shaped")


@dataclass
class RewardConfig:
    """How a judgement becomes a reward. Its range is the task's: soft values depend on it."""

    # binary: all tests or nothing; fraction: share of tests passed; shaped: fraction with a penalty
    # for no program; or your function, module.function, from a Judgement to a number in [low, high]
    kind: str = "binary"
    low: float = 0.0  # reward of a program that passes no test
    high: float = 1.0  # reward of an accepted program
    # shaped only: subtracted from `low` if there is no program
    no_program_penalty: NonNegativeFloat = 0.1

    # [length where the penalty starts, length where it reaches overlong_penalty] in tokens, linear
    # in between (DAPO's soft overlong punishment: the last 4096 of 20480); null: no penalty
    overlong: list[PositiveInt] | None = None
    overlong_penalty: PositiveFloat = 0.5  # in units of reward; half the range, as in DAPO

    # These two change only the rewards that are trained on, not those recorded and evaluated.
    dither: NonNegativeFloat = 0.0  # σ of Gaussian noise per reward (ReDit, 2506.18631: 0.05)
    # weight of the reward for being shorter than the shortest accepted response to the problem so
    # far (HAPO, 2505.11225: 1.0)
    conciseness: Annotated[float, Field(ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        if self.overlong is not None and (
            len(self.overlong) != 2 or self.overlong[0] >= self.overlong[1]
        ):
            raise ValueError(
                f"reward.overlong={self.overlong}: two lengths in tokens, the first below the "
                "second, which is task.max_response_tokens as published; e.g. [48,64]"
            )
        if "." in self.kind:
            load_function(self.kind, "task.reward.kind")
        elif self.kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise ValueError(f"reward.kind={self.kind!r}: must be one of {kinds}, or a.function")
        if not self.low < self.high:
            raise ValueError(f"reward.low={self.low} must be below reward.high={self.high}")

    @property
    def shapes_batches(self) -> bool:
        """Whether training rewards differ from the recorded ones, and may exceed `high`."""
        return self.dither > 0 or self.conciseness > 0

    @property
    def needs_all_tests(self) -> bool:
        """Whether the judge must run every test (JudgeConfig.early_stop=False)."""
        return self.kind != "binary"

    @property
    def identity(self) -> str:
        """A string that changes whenever a reward may change; it keys stored rewards."""
        code = code_digest(self.kind.rpartition(".")[0]) if "." in self.kind else ""
        return repr((sorted(asdict(self).items()), code))


def length_penalty(tokens: int, config: RewardConfig) -> float:
    """Return the penalty for a length in tokens, EOS included (DAPO, 2503.14476, eq. 13)."""
    if config.overlong is None:
        return 0.0
    start, full = config.overlong
    return config.overlong_penalty * min(1.0, max(0.0, (tokens - start) / (full - start)))


MAX_ACCEPTED_LOSS = 0.7  # keeps accepted responses above failed ones (HAPO)


def conciseness_reward(tokens: int, shortest: int | None, accepted: bool) -> float:
    """Return HAPO's length reward, in [−1, 1] (2505.11225).

    cos(π/2 · tokens / shortest), and −1 from twice that length on. An accepted response loses at
    most 0.7; a failed one gains nothing by being short. `shortest` is the length in tokens of the
    shortest accepted response to the problem in earlier batches; without one the reward is 0.
    """
    if shortest is None:
        return 0.0
    value = math.cos(min(math.pi / 2 * tokens / shortest, math.pi))
    return max(-MAX_ACCEPTED_LOSS, value) if accepted else min(0.0, value)


class RewardError(ValueError):
    """A user's reward function failed or returned no valid reward; one line."""


def reward(judgement: Judgement, config: RewardConfig) -> float:
    """Return the reward of one response.

    binary: `high` if accepted, else `low`. fraction: `low + (high − low) · passed / total`. shaped:
    like fraction, but `low − no_program_penalty` for a response without a program. Any other kind
    names a function; RewardError if its result is not a number in the range. Raises ValueError for
    an INFRA_ERROR, which says nothing about the program, and for a judgement that stopped early
    where the share of tests is needed.
    """
    if judgement.verdict is Verdict.INFRA_ERROR:
        raise ValueError("an INFRA_ERROR is no reward: leave the sample out of the batch")
    if "." in config.kind:
        return _by_function(judgement, config)
    if config.kind == "binary":
        return config.high if judgement.verdict is Verdict.ACCEPTED else config.low
    if config.kind == "shaped" and not judgement.program:
        return config.low - config.no_program_penalty
    if judgement.verdict is Verdict.SYNTAX_ERROR:
        return config.low
    if judgement.run < judgement.total:
        raise ValueError(
            f"reward.kind={config.kind} needs every test, but judging stopped after "
            f"{judgement.run} of {judgement.total}: set judge.early_stop=false"
        )
    return config.low + (config.high - config.low) * judgement.passed / judgement.total


def _by_function(judgement: Judgement, config: RewardConfig) -> float:
    where = f"task.reward.kind={config.kind}, asked about a {judgement.verdict},"
    try:
        value = float(load_function(config.kind, "task.reward.kind")(judgement))
    except Exception as error:
        # a user's function may raise anything
        reason = " ".join(str(error).split())
        raise RewardError(f"{where} failed: {type(error).__name__}: {reason}") from error
    if math.isnan(value) or not config.low <= value <= config.high:
        raise RewardError(
            f"{where} paid {value:g}, which is not between task.reward.low={config.low:g} and "
            f"task.reward.high={config.high:g}; set these to its range"
        )
    return value
