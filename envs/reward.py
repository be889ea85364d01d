"""From a judgement to the one number that a policy learns from."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from envs.import_by_name import code_digest, load_function
from envs.problem import Judgement, Verdict

KINDS = ("binary", "fraction", "shaped")


@dataclass
class RewardConfig:
    """How verdicts are paid. The range is the task's, since a soft value depends on it."""

    # binary: all tests or nothing; fraction: share of tests; shaped: see below; or a function of
    # one's own, module.function, from a Judgement to a number in [low, high]
    kind: str = "binary"
    low: float = 0.0  # paid for a program that passes no test
    high: float = 1.0  # paid for an accepted program
    no_program_penalty: NonNegativeFloat = 0.1  # shaped only: how far below `low` no program is

    # [tokens from which on a response is paid less, tokens at which it is overlong_penalty less],
    # linearly in between (DAPO's soft punishment: the last 4096 of 20480); null: length is free
    overlong: list[PositiveInt] | None = None
    overlong_penalty: PositiveFloat = 0.5  # in units of reward; DAPO's is half of its range too

    # Of a batch's rewards, before it is learned from; what is recorded and measured is without them
    dither: NonNegativeFloat = 0.0  # σ of Gaussian noise on each (ReDit, 2506.18631: 0.05)
    # weight of what an answer gains that is shorter than the shortest accepted one to its problem
    # so far (HAPO, 2505.11225: 1.0)
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
            known = ", ".join(KINDS)
            raise ValueError(f"reward.kind={self.kind!r}: must be one of {known}, or a.function")
        if not self.low < self.high:
            raise ValueError(f"reward.low={self.low} must be below reward.high={self.high}")

    @property
    def shapes_batches(self) -> bool:
        """Whether what is learned from is more than a judgement says, and may exceed `high`."""
        return self.dither > 0 or self.conciseness > 0

    @property
    def needs_all_tests(self) -> bool:
        """Whether the judge must run every test (JudgeConfig.early_stop=False)."""
        return self.kind != "binary"

    @property
    def identity(self) -> str:
        """Another string wherever a judgement may be paid otherwise, for keeping rewards by it."""
        code = code_digest(self.kind.rpartition(".")[0]) if "." in self.kind else ""
        return repr((sorted(asdict(self).items()), code))


def length_penalty(tokens: int, config: RewardConfig) -> float:
    """What a response of so many tokens, EOS included, is paid less (DAPO, 2503.14476, eq. 13)."""
    if config.overlong is None:
        return 0.0
    free, whole = config.overlong
    return config.overlong_penalty * min(1.0, max(0.0, (tokens - free) / (whole - free)))


MOST_TAKEN = 0.7  # of an accepted answer, so that it stays above every failed one (HAPO)


def conciseness_reward(tokens: int, shortest: int | None, accepted: bool) -> float:
    """What HAPO pays for a response's length beside its verdict, in [−1, 1] (2505.11225).

    `shortest`: tokens of the shortest accepted response to the problem in the batches before; None
    where there is none yet, which pays 0. cos(π/2 · tokens / shortest), −1 from twice that length
    on; an accepted response loses at most 0.7, a failed one gains nothing by being short.
    """
    if shortest is None:
        return 0.0
    paid = math.cos(min(math.pi / 2 * tokens / shortest, math.pi))
    return max(-MOST_TAKEN, paid) if accepted else min(0.0, paid)


class RewardError(ValueError):
    """A function of one's own paid nothing that is a reward; one line."""


def reward(judgement: Judgement, config: RewardConfig) -> float:
    """The reward of one response.

    binary: `high` if accepted, else `low`. fraction: `low` plus the share of tests passed of the
    way to `high`. shaped: fraction, and `low - no_program_penalty` where the response held no
    program. Any other kind is a function and pays what it returns; RewardError where that is no
    number of the range. Raises ValueError for an INFRA_ERROR, which says nothing about the program,
    and for a judgement that stopped early where the share of tests is asked for.
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
        found = float(load_function(config.kind, "task.reward.kind")(judgement))
    except Exception as error:
        # somebody's function may raise anything
        told = " ".join(str(error).split())
        raise RewardError(f"{where} failed: {type(error).__name__}: {told}") from error
    if math.isnan(found) or not config.low <= found <= config.high:
        raise RewardError(
            f"{where} paid {found:g}, which is not between task.reward.low={config.low:g} and "
            f"task.reward.high={config.high:g}; set these to its range"
        )
    return found
