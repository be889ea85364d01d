"""Rewards of a batch: their shaping, their metrics, and signs that a run learns nothing.

Shaping by length (HAPO) or noise (ReDit) depends on more than a judgement: on earlier batches, or
on random draws. So it comes after a batch is logged, stored for replay and measured, all of which
use the judgement's reward.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from transformers import PreTrainedTokenizerBase

from envs.messages import readable
from envs.reward import RewardConfig, conciseness_reward
from experiments.config.schema import RunConfig
from experiments.sample import Sample, stream

MAX_LINES, MAX_WIDTH = 12, 96  # of a response that is shown
MAX_TEXT = 4096  # characters of a response in a logger's table


@dataclass
class RewardShaping:
    """Shape rewards; keep each problem's shortest accepted response by a policy."""

    config: RewardConfig
    seed: int
    shortest: dict[str, int] = field(default_factory=dict)  # problem → tokens, EOS included

    def shape(self, samples: Sequence[Sample], step: int) -> Sequence[Sample]:
        """Return the batch of `step` with the rewards to train on.

        Lengths are compared with those of earlier batches, as HAPO's authors do. Offline programs
        are shaped too, but do not count as the shortest, since no policy generated them.
        """
        if not self.config.shapes_batches:
            return samples
        noise = stream(self.seed, "dither", step)
        shaped = []
        for sample in samples:
            shortest = self.shortest.get(sample.prompt.problem.name)
            concise = conciseness_reward(sample.length, shortest, sample.accepted)
            reward = _reward_of(sample) + self.config.conciseness * concise
            shaped.append(replace(sample, reward=reward + noise.gauss(0, self.config.dither)))
        for sample in samples:
            if sample.accepted and not sample.offline:
                name, tokens = sample.prompt.problem.name, sample.length
                self.shortest[name] = min(tokens, self.shortest.get(name, tokens))
        return shaped

    def state_dict(self) -> dict[str, Any]:
        """Return the shortest lengths."""
        return {"shortest": dict(self.shortest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.shortest = dict(state["shortest"])


def _reward_of(sample: Sample) -> float:
    assert sample.reward is not None, "samples with an infrastructure error are in no batch"
    return sample.reward


def sample_metrics(samples: Sequence[Sample], version: int) -> dict[str, Any]:
    """Return rewards and lengths of a batch's fresh samples, before training; NaN if none.

    `version`: that of the weights to be trained. Lags cover this run's own responses, replayed
    ones too.
    """
    fresh = [sample for sample in samples if sample.fresh]
    nan = float("nan")
    rewards = [_reward_of(sample) for sample in fresh]
    lags = [
        version - sample.origin.version
        for sample in samples
        if sample.origin.source == "policy" and sample.origin.version is not None
    ]
    return {
        "reward_mean": statistics.fmean(rewards) if fresh else nan,
        "reward_std": statistics.pstdev(rewards) if fresh else nan,
        "accepted_share": statistics.fmean(s.accepted for s in fresh) if fresh else nan,
        "response_tokens_mean": statistics.fmean(s.length for s in fresh) if fresh else nan,
        "truncated_share": statistics.fmean(s.truncated for s in fresh) if fresh else nan,
        "offline_share": sum(s.offline for s in samples) / len(samples) if samples else nan,
        "sample_lag_mean": statistics.fmean(lags) if lags else nan,
        "sample_lag_max": max(lags, default=nan),
    }


def sample_lines(
    step: int, samples: Sequence[Sample], tokenizer: PreTrainedTokenizerBase
) -> list[str]:
    """Show the first accepted fresh response, else the first one; nothing if there is none.

    The program if there is one, else the text of the last answer; long ones are cut.
    """
    fresh = [sample for sample in samples if sample.fresh]
    if not fresh:
        return []
    sample = next((sample for sample in fresh if sample.accepted), fresh[0])
    verdict, cut = sample.judgement.verdict, ", cut off" * sample.truncated
    number = sum(turn.answer > 0 for turn in sample.turns)
    answers = f" in {number} answers" if number > 1 else ""
    facts = f"{verdict}, reward {sample.reward:g}, {sample.generated} tokens{answers}{cut}"
    text = _shown_text(sample, tokenizer)
    lines = [readable(line[:MAX_WIDTH]) for line in text.split("\n")]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines"]
    head = f"step {step}, a response to {sample.prompt.problem.name}: {facts}"
    return [head, *(f"    {line}" for line in lines)]


def _shown_text(sample: Sample, tokenizer: PreTrainedTokenizerBase) -> str:
    """The program if there is one, else the text of the last answer."""
    last = sample.turns[-1].answer if sample.turns else len(sample.tokens)
    return sample.judgement.program or str(
        tokenizer.decode(list(sample.tokens[-last:]), skip_special_tokens=True)
    )


def sample_table(samples: Sequence[Sample], tokenizer: PreTrainedTokenizerBase) -> pd.DataFrame:
    """Return a row for each response of a batch, for the tables of loggers; long texts are cut."""
    return pd.DataFrame(
        {
            "problem": sample.prompt.problem.name,
            "fresh": sample.fresh,
            "verdict": str(sample.judgement.verdict),
            "reward": sample.reward,
            "tokens": sample.generated,
            "truncated": sample.truncated,
            "text": readable(_shown_text(sample, tokenizer)[:MAX_TEXT]),
        }
        for sample in samples
    )


# Signs that a run learns nothing.

FIRST_AFTER = 2  # steps
TRUNCATED_SHARE = 0.5  # of the responses; above, it is said


@dataclass
class LearningSigns:
    """Counts of a run's fresh responses, since its start or since it was resumed."""

    config: RunConfig
    steps: int = 0
    responses: int = 0
    truncated: int = 0
    accepted: int = 0
    mixed_groups: int = 0  # with different rewards

    def note(self, samples: Sequence[Sample]) -> None:
        """Count a batch; offline and replayed programs say nothing of the policy."""
        self.steps += 1
        groups: dict[str, set[float]] = {}
        for sample in samples:
            if sample.fresh and sample.reward is not None:
                self.responses += 1
                self.truncated += sample.truncated
                self.accepted += sample.accepted
                groups.setdefault(sample.prompt.problem.name, set()).add(sample.reward)
        self.mixed_groups += sum(len(rewards) > 1 for rewards in groups.values())

    def lines(self) -> list[str]:
        """Return what to tell the user."""
        if not self.responses:
            return []
        found, train, task = list[str](), self.config.train, self.config.task
        if not self.accepted and not (train.offline_share or train.replay_share):
            found.append(
                "no response was accepted: there is no reward to learn from; use easier problems, "
                "or mix in the data set's programs (train.offline_share)"
            )
        elif not self.mixed_groups:
            found.append(
                "no problem's responses had different rewards: objectives that compare them have "
                f"no gradient; raise train.group_size={train.group_size} or use other problems"
            )
        if self.truncated > TRUNCATED_SHARE * self.responses:
            found.append(
                f"{self.truncated / self.responses:.0%} of the responses were cut off; raise "
                f"task.max_response_tokens={task.max_response_tokens}"
            )
        return [f"NOTE: {line}" for line in found]
