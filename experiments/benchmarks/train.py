"""`make bench-train`: what an optimiser step costs under each algorithm, and a whole GRPO step.

Every algorithm takes a step on the same sampled responses, in turn, round after round, in one
process on one thread; the raw forward and backward pass of the same rows is among them, and ratios
are taken within a round. Then whole steps of GRPO, generation included and a reward that costs
nothing, ours and TRL's in turn (extra `peer`). CPU time is this process's own.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.benchmarks import rows
from experiments.benchmarks.rows import Row, row
from experiments.benchmarks.training import peer
from experiments.benchmarks.training.workload import Raw, algorithms, responses, step_of
from experiments.config.schema import ModelConfig, TrainConfig
from experiments.engines.hf import HFEngine
from experiments.policy import loading
from experiments.rollout.prompts import encode_prompts

AT_MOST = {
    "SPO": 0.75,
    "GRPO": 0.70,
    "PPO critic=separate": 1.35,
}  # of raw; the first that begins so
TIMES_TRL = 3.0


class Clock:
    """Seconds of CPU and wall by name, round after round."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = defaultdict(list)
        self.wall: dict[str, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[name].append(time.process_time() - cpu)
        self.wall[name].append(time.perf_counter() - wall)

    def ratio(self, name: str, to: str) -> list[float]:
        """CPU time to that of `to`, round by round."""
        return [a / b for a, b in zip(self.cpu[name], self.cpu[to], strict=True)]


def main() -> None:
    """Measure, print, write `bench/train.json`."""
    options = parse()
    torch.set_num_threads(1)
    model, tokenizer = loading.load(ModelConfig())
    engine = HFEngine(model, loading.end_tokens(model, tokenizer), tokenizer.pad_token_id, 4096)
    config = task_config(["task=mini"])
    task = open_task(config)
    encoded = encode_prompts(task.train, task, tokenizer, config, {})[0]
    prompts = [encoded[index].tokens for index in range(options.prompts)]
    clock, times = Clock(), config.max_response_tokens
    measure_steps(
        options, clock, model, tokenizer, responses(engine, prompts, options.group, times)
    )
    found = step_rows(clock)
    if reason := peer.missing():
        print(f"no whole steps: {reason}")
    else:
        measure_whole(options, clock, engine, tokenizer, prompts, times)
        found += whole_rows(clock)
    rows.show("one optimiser step", found)
    sizes = f"{options.prompts} prompts × {options.group} responses of at most {times} tokens"
    print(f"written to {rows.save('train', found, options.out, workload=sizes, threads=1)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group", type=int, default=8, help="responses to each")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=rows.FOLDER)
    return parser.parse_args()


def measure_steps(options, clock: Clock, model, tokenizer, samples) -> None:
    """One step of each, in turn; the first round warms up and is not counted."""
    pad = tokenizer.pad_token_id
    contestants = {name: step_of(algorithm, model, pad) for name, algorithm in algorithms().items()}
    contestants["raw"] = Raw(model, pad, 64, TrainConfig().temperature)
    for number in range(options.rounds + 1):
        for name, step in contestants.items():
            with clock.timed(name) if number else contextlib.nullcontext():
                step(samples, options.group)


def measure_whole(options, clock: Clock, engine: HFEngine, tokenizer, prompts, max_tokens) -> None:
    """Steps of GRPO from prompts to weights, ours ahead of each of TRL's."""
    name = "GRPO"
    step = step_of(algorithms()[name], engine.model, engine.pad)
    writer = HFEngine(step.learner.model, set(engine.eos.tolist()), engine.pad, 4096)
    seeds = iter(range(10**6))

    def ours() -> None:
        with clock.timed("ours, whole"):
            step(responses(writer, prompts, options.group, max_tokens, next(seeds)), options.group)

    shape = (prompts, options.group, max_tokens, options.rounds + 1)
    peer.steps(engine.model, tokenizer, *shape, ours, lambda: clock.timed("TRL, whole"))
    for times in (clock.cpu, clock.wall):
        for whole in ("ours, whole", "TRL, whole"):
            del times[whole][0]


def step_rows(clock: Clock) -> list[Row]:
    """CPU and wall of each, and its ratio to raw with the goal."""
    found = []
    for name in clock.cpu:
        found.append(row(name, "CPU time", clock.cpu[name], "s"))
        found.append(row(name, "wall time", clock.wall[name], "s"))
        if name != "raw":
            goal = next((most for start, most in AT_MOST.items() if name.startswith(start)), None)
            found.append(row(name, "CPU time to raw", clock.ratio(name, "raw"), at_most=goal))
    return found


def whole_rows(clock: Clock) -> list[Row]:
    """Whole steps of GRPO, and how many of ours go into one of TRL's."""
    found = []
    for name in ("ours, whole", "TRL, whole"):
        found.append(row(f"GRPO step, {name}", "CPU time", clock.cpu[name], "s"))
        found.append(row(f"GRPO step, {name}", "wall time", clock.wall[name], "s"))
    times = clock.ratio("TRL, whole", "ours, whole")
    return [*found, row("GRPO step, TRL to ours", "CPU time", times, at_least=TIMES_TRL)]


if __name__ == "__main__":
    main()
