"""Published times of asynchronous training, and the model's parts fitted to them.

verl (https://verl.readthedocs.io/en/latest/advance/fully_async.html, file
recipe/fully_async_policy/README.md at 19997f9): DAPO on Qwen2.5-Math-7B, 512 problems × 16
responses a step, H20 GPUs; seconds a step and of its parts. From its page on one step of overlap
(docs/advance/one_step_off.md at e55d143): the same model on "2 nodes with 16 H20 GPUs each".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from experiments.benchmarks.pipeline import Loop, fixed, lognormal, simulate

PROBLEMS, RESPONSES = 512, 16  # of a step
SIDE_BY_SIDE = 4  # problems a GPU writes at once: all 512 on 128 GPUs
STEPS = 12  # simulated; the later half counts


@dataclass(frozen=True)
class Step:
    """One line of verl's tables: seconds."""

    gpus: int
    step: float
    gen: float  # apart from training: the wait for writing
    update: float
    old: float = 0.0  # log-probs before the update; the asynchronous runs need none

    @property
    def rest(self) -> float:
        """Sync and whatever else the page does not name; nothing where its parts exceed the step"""
        return max(0.0, self.step - self.gen - self.old - self.update)


COLOCATED = {
    32: Step(32, 790.10, 357.41, 269.80, 107.71),
    64: Step(64, 365.28, 150.72, 133.41, 70.26),
    128: Step(128, 356.30, 177.85, 113.81, 53.92),
}
HALVES = {  # half of the GPUs write, half train; staleness_threshold=0.5, partial rollouts
    32: Step(32, 294.77, 21.26, 313.81),  # its parts exceed the step
    64: Step(64, 189.26, 28.46, 156.98),
    128: Step(128, 150.63, 33.14, 113.16),
}
STALENESS = {  # on 128 GPUs: how far writing may run ahead, in steps
    0.0: Step(128, 231.34, 128.47, 98.77),  # "stream off policy pipeline"
    0.1: Step(128, 171.30, 58.17, 109.12),
    0.3: Step(128, 146.11, 38.88, 103.22),
    0.5: HALVES[128],
}
MINIBATCHES = 4  # of a step, in the asynchronous runs; weights go over after the last


@dataclass(frozen=True)
class OneStep:
    """verl's runs with one step of overlap: seconds a step in turn and overlapped, and parts."""

    in_turn: float
    overlapped: float
    write: float  # generate_sequences, on 4 GPUs
    train: float  # old_log_prob and update_actor, on 12
    rest: float  # step less the wait for writing and training


ONE_STEP = {
    "FSDP2": OneStep(749, 520, 458, 108 + 337, 520 - 45 - 108 - 337),
    "Megatron": OneStep(699, 566, 501, 120 + 347, 566 - 59 - 120 - 347),
}


@cache
def mean_of(spread: float, gpus: int = 128) -> float:
    """Seconds a problem's responses take in the mean, so that a step of them takes verl's `gen`."""
    places = SIDE_BY_SIDE * gpus
    alone = Loop(lognormal(1, spread), fixed(0), fixed(0), pieces=PROBLEMS, writers=places)
    return COLOCATED[gpus].gen / simulate(alone, STEPS).step_s


def colocated(spread: float, gpus: int, of: int = 128) -> Loop:
    """Everything in turn on all GPUs; the mean from the run on `of` GPUs."""
    told = COLOCATED[gpus]
    write = lognormal(mean_of(spread, of), spread)
    after = (fixed(0), fixed(told.old + told.update), fixed(told.rest))
    return Loop(write, *after, pieces=PROBLEMS, writers=SIDE_BY_SIDE * gpus)


def streamed(spread: float, told: Step, staleness: float, of: int = 128) -> Loop:
    """Half of the GPUs write, half train, in MINIBATCHES of the problems that are done first."""
    write = lognormal(mean_of(spread, of), spread)
    return Loop(
        write,
        fixed(0),
        fixed(told.update / MINIBATCHES),
        fixed(told.rest),
        pieces=PROBLEMS // MINIBATCHES,
        writers=SIDE_BY_SIDE * told.gpus // 2,
        sync_every=MINIBATCHES,
        lag=staleness * MINIBATCHES,
        in_order=False,
    )


def step_s(loop: Loop, steps: int = STEPS) -> float:
    """Seconds for PROBLEMS problems, whatever a batch of `loop` is."""
    times = PROBLEMS // loop.pieces
    return simulate(loop, steps * times).step_s * times


@cache
def fitted_spread() -> float:
    """The one number that verl does not tell: at which the run of staleness 0 comes out right."""
    told = STALENESS[0.0]
    spreads = (0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
    return min(spreads, key=lambda s: abs(step_s(streamed(s, told, 0.0)) - told.step))


def ladder(spread: float) -> dict[str, Loop]:
    """Ways to run the same work on 128 GPUs, from what waits most."""
    apart = replace(
        colocated(spread, 128),
        train=fixed(HALVES[128].update),
        sync=fixed(HALVES[128].rest),
        writers=SIDE_BY_SIDE * 64,
    )
    return {
        "all GPUs write, then all train": colocated(spread, 128),
        "halves, one step of overlap": replace(apart, lag=1),
        "halves, new weights every ten batches": replace(apart, sync_every=10),
        "halves, fully asynchronous, at most four batches behind": replace(
            apart, lag=4, in_order=False
        ),
    }
