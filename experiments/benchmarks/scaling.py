"""`make scaling`: predictions of a model of the training loop for many GPUs.

The model is a discrete-event simulation of what waits for what; it knows nothing of learning. Its
parts are fitted to published times of verl. The command writes the marked tables of
docs/results/scaling.md, and the figure beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from analysis.report import markdown
from experiments.benchmarks.common import command
from experiments.errors import UserError

PAGE = Path("docs/results/scaling.md")
Draw = Callable[[np.random.Generator], float]  # → seconds of one service
Events = Generator[simpy.Event, Any, Any]


def fixed(seconds: float) -> Draw:
    return lambda random: seconds


NOTHING = fixed(0.0)


def lognormal(mean: float, spread: float) -> Draw:
    """`spread`: standard deviation to mean."""
    if not spread or not mean:
        return fixed(mean)
    variance = np.log1p(spread**2)
    return lambda random: float(random.lognormal(np.log(mean) - variance / 2, variance**0.5))


@dataclass(frozen=True)
class Loop:
    """A training loop. Times are seconds.

    A batch consists of `pieces` (a problem's responses, or one response). A piece is generated in
    one of `writers` slots, then judged by one of `judges`. The learner trains on complete batches.
    Generation of piece n of all begins once

        n <= (batches that the rollout weights have seen + sync_every + lag) * pieces

    With sync_every=1 and lag=0 everything happens in turn. AReaL (arXiv 2505.24298) calls this
    bound η, verl `staleness_threshold`. During a weight sync the learner waits and no piece begins.
    """

    write: Draw  # a piece, in one slot
    judge: Draw  # a piece, by one judge
    train: Draw  # a batch
    sync: Draw = NOTHING  # the learner's weights into all engines
    pieces: int = 1  # of a batch
    writers: int = 1  # engines times pieces that each generates at once
    judges: int = 1
    sync_every: int = 1
    lag: float = 0  # in batches
    overlap: bool = True  # False: judging begins when the batch is generated
    in_order: bool = True  # False: a batch takes the pieces that were judged first


@dataclass
class Course:
    """Results of a simulation."""

    ends: list[float] = field(default_factory=list)  # when each batch was trained and synced
    lags: list[int] = field(default_factory=list)  # of each trained piece, in batches
    begun: int = 0  # pieces
    written: int = 0
    judged: int = 0
    trained: int = 0

    @property
    def step_s(self) -> float:
        """Seconds a batch, over the later half, when the pipeline is full."""
        half = len(self.ends) // 2
        return (self.ends[-1] - self.ends[half - 1]) / (len(self.ends) - half)


def simulate(loop: Loop, batches: int, seed: int = 0) -> Course:
    """Train `batches` (at least two) batches."""
    simulation = _Simulation(loop, seed)
    simulation.env.run(until=simulation.env.process(simulation.learner(batches)))
    return simulation.course


class _Simulation:
    def __init__(self, loop: Loop, seed: int) -> None:
        self.loop, self.env, self.course = loop, simpy.Environment(), Course()
        # A random stream for each kind: a change of one part leaves the times of the others.
        self.random = {
            kind: np.random.default_rng([seed, number])
            for number, kind in enumerate(("write", "judge", "train", "sync"))
        }
        self.slots = simpy.Resource(self.env, loop.writers)
        self.judges = simpy.Resource(self.env, loop.judges)
        self.seen = 0  # batches that the rollout weights have seen
        self.new_weights, self.no_sync = self.env.event(), self.env.event().succeed()
        self.written: defaultdict[int, simpy.Event] = defaultdict(self.env.event)
        self.judged: defaultdict[int, simpy.Event] = defaultdict(self.env.event)
        self.versions: defaultdict[int, list[int]] = defaultdict(list)  # of a batch's pieces
        self.pieces: Counter[int] = Counter()  # generated, of each batch
        self.env.process(self.feeder())

    def serve(self, kind: str, draw: Draw) -> simpy.Event:
        return self.env.timeout(draw(self.random[kind]))

    def feeder(self) -> Events:
        """Begin pieces, in order, as slots and the bound allow."""
        loop, course = self.loop, self.course
        while True:
            slot = self.slots.request()
            yield slot
            course.begun += 1
            while course.begun > (self.seen + loop.sync_every + loop.lag) * loop.pieces:
                yield self.new_weights
            yield self.no_sync
            self.env.process(self.piece(1 + (course.begun - 1) // loop.pieces, slot))

    def piece(self, batch: int, slot: Any) -> Events:
        loop, course, version = self.loop, self.course, self.seen
        yield self.serve("write", loop.write)
        course.written += 1
        self.pieces[batch] += 1
        if self.pieces[batch] == loop.pieces:
            self.written[batch].succeed()
        self.slots.release(slot)
        if not loop.overlap:
            yield self.written[batch]
        with self.judges.request() as judge:
            yield judge
            yield self.serve("judge", loop.judge)
        target = batch if loop.in_order else course.judged // loop.pieces + 1
        course.judged += 1
        self.versions[target].append(version)
        if len(self.versions[target]) == loop.pieces:
            self.judged[target].succeed()

    def learner(self, batches: int) -> Events:
        loop, course, env = self.loop, self.course, self.env
        for batch in range(1, batches + 1):
            yield self.judged[batch]
            course.lags += [batch - 1 - version for version in self.versions.pop(batch)]
            course.trained += loop.pieces
            yield self.serve("train", loop.train)
            if batch % loop.sync_every == 0:
                self.no_sync = env.event()
                yield self.serve("sync", loop.sync)
                self.seen = batch
                self.no_sync.succeed()
                updated, self.new_weights = self.new_weights, env.event()
                updated.succeed()
            course.ends.append(env.now)


# Published times, and the model's parts fitted to them. verl's page on asynchronous training
# (https://verl.readthedocs.io/en/latest/advance/fully_async.html, at 19997f9): DAPO on
# Qwen2.5-Math-7B, 512 problems × 16 responses a step, H20 GPUs. Its page on one step of overlap
# (docs/advance/one_step_off.md at e55d143): the same model on two nodes of 16 H20 GPUs.

PROBLEMS, RESPONSES = 512, 16  # of a step
PER_GPU = 4  # problems that a GPU generates at once: all 512 on 128 GPUs
STEPS = 12  # simulated; the later half counts
MINIBATCHES = 4  # of a step, in the asynchronous runs; weights are synced after the last
LADDER_BATCHES = 20


@dataclass(frozen=True)
class Step:
    """A line of verl's tables: seconds."""

    gpus: int
    step: float
    gen: float  # without training: the wait for generation
    update: float
    old: float = 0.0  # log-probs before the update; the asynchronous runs need none

    @property
    def rest(self) -> float:
        """Sync and what the page does not name; 0 where the parts exceed the step."""
        return max(0.0, self.step - self.gen - self.old - self.update)


COLOCATED = {
    32: Step(32, 790.10, 357.41, 269.80, 107.71),
    64: Step(64, 365.28, 150.72, 133.41, 70.26),
    128: Step(128, 356.30, 177.85, 113.81, 53.92),
}
HALVES = {  # half of the GPUs generate, half train; staleness_threshold=0.5, partial rollouts
    32: Step(32, 294.77, 21.26, 313.81),  # its parts exceed the step
    64: Step(64, 189.26, 28.46, 156.98),
    128: Step(128, 150.63, 33.14, 113.16),
}
STALENESS = {  # on 128 GPUs: how far generation may run ahead, in steps
    0.0: Step(128, 231.34, 128.47, 98.77),  # "stream off policy pipeline"
    0.1: Step(128, 171.30, 58.17, 109.12),
    0.3: Step(128, 146.11, 38.88, 103.22),
    0.5: HALVES[128],
}
ONE_STEP = {  # overlapped step, generate_sequences on 4 GPUs, training on 12, the rest of the step
    "FSDP2": (520, 458, 108 + 337, 520 - 45 - 108 - 337),
    "Megatron": (566, 501, 120 + 347, 566 - 59 - 120 - 347),
}


def step_s(loop: Loop, steps: int = STEPS) -> float:
    """Seconds for PROBLEMS problems, whatever a batch of `loop` is."""
    batches = PROBLEMS // loop.pieces
    return simulate(loop, steps * batches).step_s * batches


@cache
def _write(spread: float, gpus: int = 128) -> Draw:
    """Seconds of a problem's responses, fitted to verl's `gen` on so many GPUs."""
    loop = Loop(lognormal(1, spread), NOTHING, NOTHING, pieces=PROBLEMS, writers=PER_GPU * gpus)
    return lognormal(COLOCATED[gpus].gen / simulate(loop, STEPS).step_s, spread)


def colocated(spread: float, gpus: int) -> Loop:
    """All GPUs generate, then all train."""
    times = COLOCATED[gpus]
    train, sync = fixed(times.old + times.update), fixed(times.rest)
    return Loop(_write(spread), NOTHING, train, sync, pieces=PROBLEMS, writers=PER_GPU * gpus)


def streamed(spread: float, times: Step, staleness: float, fitted_on: int = 128) -> Loop:
    """Half of the GPUs generate, half train on minibatches of the problems judged first."""
    return Loop(
        _write(spread, fitted_on),
        NOTHING,
        fixed(times.update / MINIBATCHES),
        fixed(times.rest),
        pieces=PROBLEMS // MINIBATCHES,
        writers=PER_GPU * times.gpus // 2,
        sync_every=MINIBATCHES,
        lag=staleness * MINIBATCHES,
        in_order=False,
    )


@cache
def fitted_spread() -> float:
    """Spread of lengths, which verl does not publish: fits the run of staleness 0."""
    times = STALENESS[0.0]
    spreads = (0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
    return min(spreads, key=lambda s: abs(step_s(streamed(s, times, 0.0)) - times.step))


def ladder(spread: float) -> dict[str, tuple[Loop, str]]:
    """Ways to run the same work on 128 GPUs, and the published speed-up of each."""
    train, sync = fixed(HALVES[128].update), fixed(HALVES[128].rest)
    halves = replace(colocated(spread, 128), train=train, sync=sync, writers=PER_GPU * 64)
    return {
        "all GPUs write, then all train": (colocated(spread, 128), "1"),
        "halves, one step of overlap": (replace(halves, lag=1), "1.23 and 1.44 (verl)"),
        "halves, new weights every ten batches": (
            replace(halves, sync_every=10),
            "1.85 (SPO; not confirmed)",
        ),
        "halves, fully asynchronous, at most four batches behind": (
            replace(halves, lag=4, in_order=False),
            "2.27 and 2.77 (AReaL), 1.93 to 2.68 (verl)",
        ),
    }


def published_table(spread: float) -> str:
    """Published seconds a step, and the model's."""
    rows = []
    for gpus, times in COLOCATED.items():
        note = "its mean is fitted" if gpus == 128 else "predicted from 128 GPUs"
        name = f"verl, {gpus} GPUs, all write, then all train"
        rows.append(_comparison(name, times.step, step_s(colocated(spread, gpus)), note))
    for staleness, times in STALENESS.items():
        note = "predicted" if staleness else "its spread is fitted"
        name, loop = f"64 + 64 GPUs, staleness {staleness}", streamed(spread, times, staleness)
        rows.append(_comparison(f"verl, {name}", times.step, step_s(loop), note))
    for gpus, note in {
        32: "predicted; its published parts exceed the step",
        64: "predicted",
    }.items():
        name = f"verl, {gpus // 2} + {gpus // 2} GPUs, staleness 0.5"
        loop = streamed(spread, HALVES[gpus], 0.5, fitted_on=gpus)
        rows.append(_comparison(name, HALVES[gpus].step, step_s(loop), note))
    for engine, (step, write, train, rest) in ONE_STEP.items():
        loop = Loop(fixed(write), NOTHING, fixed(train), fixed(rest), lag=1)
        name, model = f"one step of overlap, 4 + 12 GPUs, {engine}", simulate(loop, 20).step_s
        rows.append(_comparison(f"verl, {name}", step, model, "from its own parts"))
    return markdown.table(["", "published, s a step", "the model", "error", ""], rows)


def _comparison(name: str, published: float, model: float, note: str) -> list[str]:
    error = f"{round(100 * (model / published - 1)):+d} %".replace("+0", "0")
    return [name, f"{published:.0f}", f"{model:.0f}", error, note]


def order_table(spread: float) -> str:
    """Speed-ups of the ladder, and published ones."""
    rows, first = [], None
    for name, (loop, published) in ladder(spread).items():
        course = simulate(loop, LADDER_BATCHES)
        first = first or course.step_s
        lag = f"{np.mean(course.lags):.1f}"
        speedup = f"{first / course.step_s:.2f}"
        rows.append([name, f"{course.step_s:.0f}", speedup, lag, published])
    return markdown.table(["", "s a step", "the model", "lag, mean", "published"], rows)


def draw(spread: float, file: Path) -> None:
    """Steps an hour against GPUs, judges, and lag."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from experiments.studies.figures import LOOK

    with plt.rc_context(LOOK):
        figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        for axes, (title, lines) in zip(panels, _panels(spread).items(), strict=True):
            for label, loops in lines.items():
                rates = [3600 / step_s(loop) for loop in loops.values()]
                axes.plot(list(loops), rates, "o-", label=label)
            axes.set(title=title, ylim=(0, None))
            axes.legend()
        for marker, times in (("o", COLOCATED), ("x", HALVES)):
            rates = [3600 / step.step for step in times.values()]
            panels[0].plot(list(times), rates, marker, color="black", markersize=7)
        panels[0].set(xlabel="GPUs", ylabel="steps an hour", xticks=list(HALVES))
        panels[1].set(xlabel="cores that judge", xscale="log")
        panels[2].set(xlabel="steps that generation may be ahead")
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


def _panels(spread: float) -> dict[str, dict[str, dict[float, Loop]]]:
    """title → label of a line → x → loop."""
    gpus: dict[str, dict[float, Loop]] = {"all in turn": {n: colocated(spread, n) for n in HALVES}}
    for staleness in (0.0, 0.5):
        name = f"halves, staleness {staleness}"
        gpus[name] = {n: streamed(spread, times, staleness) for n, times in HALVES.items()}
    halves, counts = streamed(spread, HALVES[128], 0.5), (1, 4, 16, 64, 256, 1024)
    judges: dict[str, dict[float, Loop]] = {}
    for seconds in (0.005, 1.0, 10.0):  # CPU of a program; the first is measured on MiniContests
        judge = lognormal(seconds * RESPONSES, 1.0)
        name = f"{seconds:g} s a program"
        judges[name] = {n: replace(halves, judge=judge, judges=n) for n in counts}
    lags: dict[str, dict[float, Loop]] = {
        f"spread of lengths {lengths:g}": {
            lag: streamed(lengths, HALVES[128], lag) for lag in (0, 0.25, 0.5, 1, 2, 4)
        }
        for lengths in (0.2, fitted_spread(), 0.8)
    }
    return {
        "GPUs (black: published)": gpus,
        "Judges, 64 + 64 GPUs": judges,
        "Lag, 64 + 64 GPUs": lags,
    }


def replace_table(page: Path, name: str, text: str) -> None:
    """Replace the text between the page's markers of this name. Raises UserError without them."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, opened, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise UserError(f"page={page}: it has no markers <!-- {name} --> and {end}")
    page.write_text(before + begin + text + "\n" + end + after)


@dataclass
class Options:
    page: Path = PAGE


def main(options: Options) -> None:
    """Simulate, print, and write the page's tables and its figure."""
    if not options.page.is_file():
        raise UserError(f"page={options.page}: no such file; its marked tables are rewritten")
    spread = fitted_spread()
    for name, text in {"published": published_table(spread), "order": order_table(spread)}.items():
        print(text, end="\n\n")
        replace_table(options.page, name, text)
    draw(spread, options.page.with_suffix(".svg"))


if __name__ == "__main__":
    command(Options, main)
