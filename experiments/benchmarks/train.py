"""`make bench-train`: cost of an optimiser step of each algorithm, and of whole GRPO steps.

Every algorithm steps on the same sampled responses, in turn, in one process on one thread. Ratios
to the raw forward and backward pass of the same rows are taken within a round. Whole steps of GRPO
follow, ours and, where it is installed (extra `peer`), TRL's in turn. A model that is not bundled
takes whole steps alone: seven learners at once need too much memory. CPU time is of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from experiments.benchmarks import common, whole_steps
from experiments.benchmarks.common import Row, alternate, compare, start_timer
from experiments.benchmarks.whole_steps import Raw
from experiments.benchmarks.workload import (
    BatchSize,
    MiniContests,
    algorithms,
    batch_size,
    model_config,
    responses,
    step_of,
)
from experiments.config.model_folder import BUILT_HERE

if TYPE_CHECKING:
    from experiments.sample import Sample

RELATIVE = "CPU time relative to raw"
GOALS = {"SPO": "≤ 0.75", "GRPO": "≤ 0.7", "PPO critic=separate": "≤ 1.35"}  # by prefix
Step = Callable[[Sequence["Sample"], int], object]


@dataclass
class Options(common.Options):
    model: str = "nano"  # of conf/model, a folder, a .gguf file or a hub id
    prompts: PositiveInt | None = None  # of a batch; null: 16, not bundled: 4
    group: PositiveInt | None = None  # responses to each prompt; null: 8, not bundled: 4
    max_tokens: PositiveInt | None = None  # of a response; null: 64, not bundled: 48


def main(options: Options) -> None:
    """Measure and write `train.json`."""
    import torch

    torch.set_num_threads(1)
    model = model_config(options.model)
    size = batch_size(model, options.prompts, options.group, options.max_tokens)
    mini = MiniContests.load(model, size.prompts)
    rows = measure_steps(options.rounds, mini, size) if model.path in BUILT_HERE else []
    rows += whole_steps.measure(options.rounds, mini, size)
    facts = {"model": options.model, "workload": f"{size} tokens", "threads": 1}
    common.finish("train", rows, options.out, **facts)


def measure_steps(rounds: int, mini: MiniContests, size: BatchSize) -> list[Row]:
    """One optimiser step of each algorithm and of the raw pass, in turn."""
    policy, pad, steps = mini.engine.policy, mini.engine.pad, dict[str, Step]()
    samples = responses(mini.engine, mini.prompts, size.responses, size.max_tokens)
    for name, algorithm in algorithms().items():
        steps[name] = step_of(algorithm, policy, pad)
    steps["raw"] = Raw(policy.model)

    def time_step(step: Step, number: int) -> dict[str, float]:
        seconds = start_timer()
        step(samples, size.responses)
        return seconds()

    cases = {name: partial(time_step, step) for name, step in steps.items()}
    values = alternate(cases, rounds)
    goals = {
        (name, RELATIVE): goal
        for name in steps
        for prefix, goal in GOALS.items()
        if name.startswith(prefix)
    }
    return compare(values, "s", "raw", goals)


if __name__ == "__main__":
    common.command(Options, main)
