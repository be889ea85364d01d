"""`make bench which=scaling`: predictions of a model of the training loop for many GPUs.

The model is a discrete-event simulation of what waits for what; it knows nothing of learning. Its
parts are fitted to published times of verl. Prints a table of docs/results/scaling.md.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import simpy

from analysis.rendering import markdown_table
from envs.command_line import take_no_arguments

Events = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True)
class Time:
    """Seconds of one service: fixed, or lognormal. `spread`: standard deviation to mean."""

    mean: float
    spread: float = 0.0

    def draw(self, random: np.random.Generator) -> float:
        if not self.spread or not self.mean:
            return self.mean
        variance = np.log1p(self.spread**2)
        return float(random.lognormal(np.log(self.mean) - variance / 2, variance**0.5))


@dataclass(frozen=True)
class Loop:
    """A training loop.

    A batch consists of `pieces` (a problem's responses, or one response). A piece is generated in
    one of `slots`. The learner trains on complete batches.
    Generation of piece n of all begins once

        n <= (batches that the rollout weights have seen + sync_every + lag) * pieces

    With sync_every=1 and lag=0 everything happens in turn. AReaL (arXiv 2505.24298) calls this
    bound η, verl `staleness_threshold`. During a weight sync the learner waits and no piece begins.
    """

    generate: Time  # a piece, in one slot
    train: Time = Time(0)  # a batch
    sync: Time = Time(0)  # the learner's weights into all engines
    pieces: int = 1  # of a batch
    slots: int = 1  # engines times pieces that each generates at once
    sync_every: int = 1
    lag: float = 0  # in batches
    in_order: bool = True  # False: a batch takes the pieces that were generated first


class Simulation:
    """What waits for what, in seconds of simulated time."""

    def __init__(self, loop: Loop, seed: int = 0) -> None:
        self.loop, self.env = loop, simpy.Environment()
        # A random stream for each kind: a change of one part leaves the times of the others.
        kinds = enumerate(("generate", "train", "sync"))
        self.random = {kind: np.random.default_rng([seed, number]) for number, kind in kinds}
        self.slots = simpy.Resource(self.env, loop.slots)
        self.begun = 0  # pieces
        # The rollout weights of generated pieces, of each batch or (key 0) of all.
        self.versions = defaultdict[int, simpy.Store](lambda: simpy.Store(self.env))
        self.seen = 0  # batches that the rollout weights have seen
        self.syncing, self.synced = False, self.env.event()
        self.ends: list[float] = []  # when each batch was trained and synced
        self.lags: list[int] = []  # of each trained piece, in batches

    def run(self, batches: int) -> Simulation:
        """Train `batches` (at least two) batches."""
        self.env.process(self.feeder())
        self.env.run(until=self.env.process(self.learner(batches)))
        return self

    @property
    def step_s(self) -> float:
        """Seconds a batch, over the later half, when the pipeline is full."""
        half = len(self.ends) // 2
        return (self.ends[-1] - self.ends[half - 1]) / (len(self.ends) - half)

    def serve(self, kind: str) -> simpy.Event:
        return self.env.timeout(getattr(self.loop, kind).draw(self.random[kind]))

    def feeder(self) -> Events:
        """Begin pieces, in order, as slots and the bound allow."""
        loop, bound = self.loop, self.loop.sync_every + self.loop.lag
        while True:
            slot = self.slots.request()
            yield slot
            self.begun += 1
            while self.syncing or self.begun > (self.seen + bound) * loop.pieces:
                yield self.synced
            self.env.process(self.piece(1 + (self.begun - 1) // loop.pieces, slot))

    def piece(self, batch: int, slot: Any) -> Events:
        version = self.seen
        yield self.serve("generate")
        self.slots.release(slot)
        self.versions[batch if self.loop.in_order else 0].put(version)

    def learner(self, batches: int) -> Events:
        for batch in range(1, batches + 1):
            for _ in range(self.loop.pieces):
                version = yield self.versions[batch if self.loop.in_order else 0].get()
                self.lags.append(batch - 1 - version)
            yield self.serve("train")
            if batch % self.loop.sync_every == 0:
                self.syncing = True
                yield self.serve("sync")
                self.seen, self.syncing = batch, False
                self.synced.succeed()
                self.synced = self.env.event()
            self.ends.append(self.env.now)


# Published times, and the model's parts fitted to them. verl's page on asynchronous training
# (https://verl.readthedocs.io/en/latest/advance/fully_async.html, at 19997f9): DAPO on
# Qwen2.5-Math-7B, 512 problems × 16 responses a step, H20 GPUs. Its page on one step of overlap
# (docs/advance/one_step_off.md at e55d143): the same model on two nodes of 16 H20 GPUs.
PROBLEMS = 512  # of a step, × 16 responses
PER_GPU = 4  # problems that a GPU generates at once: all 512 on 128 GPUs
STEPS = 12  # simulated; the later half counts
MINIBATCHES = 4  # of a step, in the asynchronous runs; weights are synced after the last


@dataclass(frozen=True)
class Run:
    """A line of verl's tables: seconds of a step."""

    gpus: int
    step: float
    gen: float  # without training: the wait for generation
    update: float  # and log-probs before it; the asynchronous runs need none
    staleness: float | None = None  # None: all GPUs generate, then all train
    note: str = "predicted"  # what the model shares with the run

    def loop(self, spread: float, fitted_on: int = 128) -> Loop:
        """With a staleness, half of the GPUs generate, half train on what was generated first."""
        # Sync and what the page does not name; 0 where the parts exceed the step.
        rest = Time(max(0.0, self.step - self.gen - self.update))
        generate, update, slots = _generate(spread, fitted_on), self.update, PER_GPU * self.gpus
        if self.staleness is None:
            return Loop(generate, train=Time(update), sync=rest, pieces=PROBLEMS, slots=slots)
        return Loop(
            generate,
            train=Time(update / MINIBATCHES),
            sync=rest,
            pieces=PROBLEMS // MINIBATCHES,
            slots=slots // 2,
            sync_every=MINIBATCHES,
            lag=self.staleness * MINIBATCHES,
            in_order=False,
        )


COLOCATED: dict[float, Run] = {
    32: Run(32, 790.10, 357.41, 269.80 + 107.71, note="predicted from 128 GPUs"),
    64: Run(64, 365.28, 150.72, 133.41 + 70.26, note="predicted from 128 GPUs"),
    128: Run(128, 356.30, 177.85, 113.81 + 53.92, note="its mean is fitted"),
}
HALVES: dict[float, Run] = {  # staleness_threshold=0.5, partial rollouts
    32: Run(32, 294.77, 21.26, 313.81, 0.5, "predicted; its published parts exceed the step"),
    64: Run(64, 189.26, 28.46, 156.98, 0.5),
    128: Run(128, 150.63, 33.14, 113.16, 0.5),
}
STALENESS = {  # on 128 GPUs: how far generation may run ahead, in steps
    0.0: Run(128, 231.34, 128.47, 98.77, 0.0, "its spread is fitted"),  # "stream off policy"
    0.1: Run(128, 171.30, 58.17, 109.12, 0.1),
    0.3: Run(128, 146.11, 38.88, 103.22, 0.3),
    0.5: HALVES[128],
}
ONE_STEP = {  # overlapped step, generate_sequences on 4 GPUs, training on 12, the rest of the step
    "FSDP2": (520, 458, 108 + 337, 520 - 45 - 108 - 337),
    "Megatron": (566, 501, 120 + 347, 566 - 59 - 120 - 347),
}


@cache
def _generate(spread: float, gpus: int) -> Time:
    """Seconds of a problem's responses, fitted to verl's `gen` on so many GPUs."""
    loop = Loop(Time(1, spread), pieces=PROBLEMS, slots=PER_GPU * gpus)
    return Time(COLOCATED[gpus].gen / Simulation(loop).run(STEPS).step_s, spread)


def step_s(loop: Loop) -> float:
    """Seconds for PROBLEMS problems, whatever a batch of `loop` is."""
    batches = PROBLEMS // loop.pieces
    return Simulation(loop).run(STEPS * batches).step_s * batches


def main() -> None:
    """Simulate, and print the table of published times of docs/results/scaling.md."""
    # The spread of lengths, which verl does not publish, fits the run of staleness 0.
    stream, spreads = STALENESS[0.0], (0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
    spread = min(spreads, key=lambda spread: abs(step_s(stream.loop(spread)) - stream.step))
    rows = []

    def add(name: str, published: float, model: float, note: str) -> None:
        error = f"{round(100 * (model / published - 1)):+d} %"
        rows.append([f"verl, {name}", f"{published:.0f}", f"{model:.0f}", error, note])

    for gpus, run in COLOCATED.items():
        name = f"{gpus} GPUs, all generate, then all train"
        add(name, run.step, step_s(run.loop(spread)), run.note)
    for run in (*STALENESS.values(), HALVES[32], HALVES[64]):
        name = f"{run.gpus // 2} + {run.gpus // 2} GPUs, staleness {run.staleness}"
        add(name, run.step, step_s(run.loop(spread, fitted_on=run.gpus)), run.note)
    for engine, (step, generate, train, rest) in ONE_STEP.items():
        loop = Loop(Time(generate), train=Time(train), sync=Time(rest), lag=1)
        name, model = f"one step of overlap, 4 + 12 GPUs, {engine}", Simulation(loop).run(20).step_s
        add(name, step, model, "from its own parts")
    print(markdown_table(["", "published, s a step", "the model", "error", ""], rows))


if __name__ == "__main__":
    take_no_arguments(__doc__, sys.argv[1:])
    main()
