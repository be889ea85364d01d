"""A discrete-event model of the training loop: what waits for what, and nothing of what is learnt.

A batch is `pieces` pieces (a problem's responses, or one response). A piece is written on one of
`writers` places, then judged by one of `judges`; the learner trains on a batch when it is whole.
One inequality says how far writing may run ahead: piece n of all begins once

    n <= (batches that the writers' weights have seen + sync_every + lag) * pieces

With sync_every=1 and lag=0 that is the loop in which everything happens in turn; sync_every=10 lets
the writers go on for ten batches without new weights, lag=L always lets them be L batches behind.
That is what AReaL (arXiv 2505.24298) bounds by η, and verl by `staleness_threshold`.

A place that has written a piece keeps it while `queue` others wait for a judge. While weights go
over, the learner stands still and no piece is begun; those that are being written go on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import simpy

Draw = Callable[[np.random.Generator], float]  # → seconds of one service
Events = Iterator[simpy.Event]


def fixed(seconds: float) -> Draw:
    return lambda random: seconds


NOTHING = fixed(0.0)


def lognormal(mean: float, spread: float) -> Draw:
    """`spread`: standard deviation to mean."""
    if not spread or not mean:
        return fixed(mean)
    variance = np.log1p(spread**2)
    return lambda random: float(random.lognormal(np.log(mean) - variance / 2, variance**0.5))


def recorded(seconds: list[float]) -> Draw:
    """One of those that were measured."""
    return lambda random: float(random.choice(seconds))


@dataclass(frozen=True)
class Loop:
    """A loop's parts; times are seconds."""

    write: Draw  # a piece, on one place
    judge: Draw  # a piece, by one judge
    train: Draw  # a batch
    sync: Draw = NOTHING  # the learner's weights into all writers
    pieces: int = 1  # in a batch
    writers: int = 1  # pieces that are written at once: engines times what each writes side by side
    judges: int = 1
    sync_every: int = 1
    lag: float = 0  # in batches
    queue: int | None = None  # written pieces that may wait for a judge; None: any number
    overlap: bool = True  # False: judging begins when the batch is written
    in_order: bool = True  # False: a batch is of the pieces that were judged first, whoever's
    cores: int | None = None  # that writing, judging and training share; None: each has its own

    def __post_init__(self) -> None:
        if not self.overlap and self.queue is not None and self.queue < self.pieces:
            raise ValueError(
                f"queue={self.queue} with overlap=False: a batch of {self.pieces} pieces waits "
                f"as a whole; use queue={self.pieces} or more"
            )


@dataclass
class Course:
    """What a simulated run came to."""

    ends: list[float] = field(default_factory=list)  # when each batch was trained and synced
    lags: list[int] = field(default_factory=list)  # of each trained piece, in batches
    begun: int = 0
    written: int = 0
    judged: int = 0
    trained: int = 0
    most_waiting: int = 0  # written pieces that waited for a judge
    busy: Counter[str] = field(default_factory=Counter)  # seconds of service, of all servers
    waited_written: float = 0.0  # seconds the learner waited for a batch to be written,
    waited_judged: float = 0.0  # and then for the rest of its verdicts

    @property
    def step_s(self) -> float:
        """Seconds a batch: of the later half, when the pipeline is full."""
        half = len(self.ends) // 2
        return (self.ends[-1] - self.ends[half - 1]) / (len(self.ends) - half)

    def shares(self, loop: Loop) -> dict[str, float]:
        """How busy each kind of server was, as a share of the whole time."""
        servers = {"write": loop.writers, "judge": loop.judges, "train": 1, "sync": 1}
        return {kind: self.busy[kind] / count / self.ends[-1] for kind, count in servers.items()}


def simulate(loop: Loop, batches: int, seed: int = 0) -> Course:
    """Train `batches` (at least two) batches."""
    run = _Run(loop, seed)
    run.env.run(until=run.env.process(run.learner(batches)))
    return run.course


class _Run:
    def __init__(self, loop: Loop, seed: int) -> None:
        self.loop, self.env, self.course = loop, simpy.Environment(), Course()
        # One stream for each kind: what else there is changes no piece's time.
        self.random = {
            kind: np.random.default_rng([seed, number])
            for number, kind in enumerate(("write", "judge", "train", "sync"))
        }
        self.writers = simpy.Resource(self.env, loop.writers)
        self.judges = simpy.Resource(self.env, loop.judges)
        self.waiting = simpy.Resource(self.env, loop.queue or 10**9)
        self.cores = simpy.Resource(self.env, loop.cores) if loop.cores else None
        self.seen = 0  # batches that the writers' weights have seen
        self.new_weights, self.idle = self.env.event(), self.env.event().succeed()
        self.written: defaultdict[int, simpy.Event] = defaultdict(self.env.event)
        self.ready: defaultdict[int, simpy.Event] = defaultdict(self.env.event)
        self.parts: defaultdict[int, list[int]] = defaultdict(list)  # batch → versions
        self.whole: Counter[int] = Counter()  # batch → pieces that are written
        self.env.process(self.feeder())

    def serve(self, kind: str, draw: Draw) -> Events:
        """One service, on a core where there are not enough for all."""
        core = self.cores.request() if self.cores else None
        if core:
            yield core
        seconds = draw(self.random[kind])
        yield self.env.timeout(seconds)
        self.course.busy[kind] += seconds
        if core:
            self.cores.release(core)

    def feeder(self) -> Events:
        """Begin pieces, in order, as places and the bound allow."""
        loop, course = self.loop, self.course
        while True:
            place = self.writers.request()
            yield place
            course.begun += 1
            while course.begun > (self.seen + loop.sync_every + loop.lag) * loop.pieces:
                yield self.new_weights
            yield self.idle  # no transfer of weights goes on
            self.env.process(self.piece(1 + (course.begun - 1) // loop.pieces, place))

    def piece(self, batch: int, place: simpy.resources.resource.Request) -> Events:
        loop, course, version = self.loop, self.course, self.seen
        yield from self.serve("write", loop.write)
        course.written += 1
        self.whole[batch] += 1
        if self.whole[batch] == loop.pieces:
            self.written[batch].succeed()
        waiting = self.waiting.request()
        yield waiting
        self.writers.release(place)
        course.most_waiting = max(course.most_waiting, self.waiting.count)
        if not loop.overlap:
            yield self.written[batch]
        with self.judges.request() as judge:
            yield judge
            self.waiting.release(waiting)
            yield from self.serve("judge", loop.judge)
        into = batch if loop.in_order else course.judged // loop.pieces + 1
        course.judged += 1
        self.parts[into].append(version)
        if len(self.parts[into]) == loop.pieces:
            self.ready[into].succeed()

    def learner(self, batches: int) -> Events:
        loop, course, env = self.loop, self.course, self.env
        for batch in range(1, batches + 1):
            begin = env.now
            if loop.in_order:
                yield self.written[batch]
            course.waited_written += env.now - begin
            begin = env.now
            yield self.ready[batch]
            course.waited_judged += env.now - begin
            course.lags += [batch - 1 - version for version in self.parts.pop(batch)]
            course.trained += loop.pieces
            yield from self.serve("train", loop.train)
            if batch % loop.sync_every == 0:
                self.idle = env.event()
                yield from self.serve("sync", loop.sync)
                self.seen = batch
                self.idle.succeed()
                told, self.new_weights = self.new_weights, env.event()
                told.succeed()
            course.ends.append(env.now)
