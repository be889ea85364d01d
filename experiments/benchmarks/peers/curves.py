"""`make bench-curves`: whether GRPO learns the same here and in TRL.

Each seed is a run of both from the same weights, with the same problems in each step, the same
rewards and options, and tokens sampled by either's own generator. So single rewards differ, and
expected rewards are equal if both learn alike. A step's value is the mean reward of its responses.

Two means are compared: over all steps, and over the second half, where a difference in what was
learned is largest. Their difference in pairs of runs of a seed has a t interval over the seeds. The
curves are within noise if both intervals hold 0; the levels are chosen so that equal learners are
told apart in at most 5 % of such comparisons. Needs TRL (extra `peer`).
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

import algorithms
from analysis import markdown
from envs.environment import Environment
from envs.judge.judge import JudgeConfig
from experiments.benchmarks import common, workload
from experiments.benchmarks.peers.trl import (
    TRL_RELEASE,
    OurSteps,
    reward_function,
    trl_is_installed,
    trl_trainer,
)
from experiments.benchmarks.workload import MiniContests
from experiments.config.composition import config_of
from experiments.config.model_folder import BUILT_HERE
from experiments.errors import UserError
from experiments.sample import PromptedProblem

if TYPE_CHECKING:
    import numpy as np

ERROR_RATE = 0.05  # that equal learners are told apart, by either of two comparisons
RATE_OF_PRETRAINED, TOKENS_OF_PRETRAINED = 1e-5, 160


@dataclass
class Options:
    """The command line."""

    model: str = "nano"  # of conf/model, a folder, a .gguf file or a hub id
    steps: Annotated[int, Field(ge=2)] = 20  # of each run
    seeds: Annotated[int, Field(ge=2)] = 3  # runs of each
    prompts: PositiveInt | None = None  # of a step; null: 16, not bundled: 4
    group: PositiveInt | None = None  # responses to each prompt; null: 8, not bundled: 4
    max_tokens: PositiveInt | None = None  # of a response; null: 64, not bundled: 160
    rate: PositiveFloat | None = None  # learning rate; null: GRPO's, not bundled: 1e-5
    # task.reward.kind; null: binary, not bundled: shaped, since it solves hardly any problem
    reward: Literal["binary", "fraction", "shaped"] | None = None
    out: Path = common.FOLDER  # folder of the results


def main(options: Options) -> None:
    """Train, and write `curves.json` and `curves.md`. Raises UserError without TRL or a sandbox."""
    if not trl_is_installed():
        raise UserError(f"TRL {TRL_RELEASE} is not installed; pip install -e '.[peer]'")
    model = workload.usable_model(options.model)
    import numpy as np
    import torch

    from experiments.rollout.environments import open_environments

    torch.set_num_threads(1)
    bundled = model.path in BUILT_HERE
    tokens = options.max_tokens or (None if bundled else TOKENS_OF_PRETRAINED)
    size = workload.batch_size(model, options.prompts, options.group, tokens)
    rate = options.rate or (
        algorithms.make("grpo").config.learning_rate if bundled else RATE_OF_PRETRAINED
    )
    reward = options.reward or ("binary" if bundled else "shaped")
    mini = MiniContests.load(model, size, options.steps, reward)
    judge = JudgeConfig(early_stop=not mini.task.reward.needs_all_tests)
    ours, theirs = [], []
    with open_environments(replace(config_of([]), task=mini.task, judge=judge)) as environments:
        for seed in range(options.seeds):
            prompted = random.Random(seed).sample(mini.prompted, len(mini.prompted))
            ours.append(our_rewards(mini, prompted, environments.make(), rate, seed))
            theirs.append(trl_rewards(mini, prompted, environments.make(), rate, seed))
            print(f"seed {seed}: {np.mean(ours[-1]):.3f} ours, {np.mean(theirs[-1]):.3f} TRL's")
    facts = {"model": options.model, "workload": f"{size} tokens", "learning rate": rate}
    finish(np.array(ours), np.array(theirs), options.out, **facts, reward=reward)


def our_rewards(
    mini: MiniContests,
    prompted: Sequence[PromptedProblem],
    judge: Environment,
    rate: float,
    seed: int,
) -> list[float]:
    """The mean reward of each step's responses. The learning rate is constant, as in TRL's run."""
    steps, means = OurSteps(mini, judge, algorithms.make("grpo", learning_rate=rate)), []
    for number, start in enumerate(range(0, len(prompted), mini.size.prompts)):
        batch = prompted[start : start + mini.size.prompts]
        samples = steps.take(batch, 1000 * seed + number)
        means.append(_mean([sample.reward for sample in samples]))
    return means


def trl_rewards(
    mini: MiniContests,
    prompted: Sequence[PromptedProblem],
    judge: Environment,
    rate: float,
    seed: int,
) -> list[float]:
    """The same of TRL's trainer."""
    means: list[float] = []
    rewards = reward_function(mini, prompted, judge, lambda _, paid: means.append(_mean(paid)))
    with tempfile.TemporaryDirectory() as folder:
        trl_trainer(folder, mini, rewards, prompted, rate, seed).train()
    return means


def _mean(rewards: Sequence[float | None]) -> float:
    """The mean reward of those that were judged."""
    judged = [reward for reward in rewards if reward is not None]
    return sum(judged) / len(judged)


# Comparison


@dataclass(frozen=True)
class Difference:
    """Ours − TRL's, the mean over seeds, with its standard error and t interval."""

    name: str
    mean: float
    error: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        return self.low <= 0 <= self.high


def differences(ours: np.ndarray, theirs: np.ndarray) -> list[Difference]:
    """Over all steps and over the second half, of mean rewards of shape (seeds, steps) each.

    Raises UserError if no reward differs from another: such curves say nothing.
    """
    from scipy import stats

    if ours.min() == ours.max() == theirs.min() == theirs.max():
        raise UserError(f"every step's mean reward is {ours.min():g}: there is nothing to compare")
    parts = {"all steps": 0, "second half": ours.shape[1] // 2}
    quantile = stats.t.ppf(1 - ERROR_RATE / len(parts) / 2, len(ours) - 1)
    found = []
    for name, first in parts.items():
        mean, error = with_error((ours - theirs)[:, first:].mean(1))
        width = quantile * error
        found.append(Difference(name, float(mean), float(error), mean - width, mean + width))
    return found


def with_error(values: np.ndarray) -> tuple[Any, Any]:
    """(mean, its standard error) over the first axis, the seeds."""
    return values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5


def verdict(found: Sequence[Difference]) -> str:
    """One sentence on whether the curves are the same as far as these runs can show."""
    told = [
        f"{each.name} {each.mean:+.3f} ± {each.error:.3f} [{each.low:+.3f}, {each.high:+.3f}]"
        for each in found
    ]
    within = all(each.within_noise for each in found)
    return f"{'Within noise' if within else 'NOT within noise'}: ours − TRL's, {'; '.join(told)}."


def finish(ours: np.ndarray, theirs: np.ndarray, out: Path, **facts: Any) -> None:
    """Print both curves and the verdict; write them with every run's rewards."""
    found = differences(ours, theirs)
    curves = [with_error(values) for values in (ours, theirs, ours - theirs)]
    cells = [
        [str(step + 1), *(f"{means[step]:.3f} ± {errors[step]:.3f}" for means, errors in curves)]
        for step in range(ours.shape[1])
    ]
    table = markdown.table(["step", "ours", "TRL's", "difference"], cells)
    seeds = f"{len(ours)} seeds; mean reward ± its standard error over them"
    made = common.made() | facts
    page = f"{common.in_one_line(made)}\n\n{seeds}\n\n{table}\n\n{verdict(found)}"
    result = {"bench": "curves", "made": made, "verdict": verdict(found)}
    result |= {"ours": ours.tolist(), "TRL's": theirs.tolist()}
    out.mkdir(parents=True, exist_ok=True)
    (out / "curves.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    (out / "curves.md").write_text(f"## Curves\n\n{page}\n")
    print(f"{page}\n\nwritten to {out / 'curves.json'}")


if __name__ == "__main__":
    common.command(Options, main)
