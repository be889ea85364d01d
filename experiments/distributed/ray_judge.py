"""One environment whose work Ray's judge actors do.

Actors are told by their calls alone what to do and to know, so one that dies is replaced by one
that says and counts the same (`experiments/distributed/ray_actor_pool.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from envs.environment import Submission
from envs.problem import Judgement
from experiments.distributed.ray_actor_pool import ActorPool, Call
from experiments.distributed.ray_actors import submissions
from experiments.distributed.sharded_judge import Judged, Known, SplitJudge, merge, owner
from experiments.errors import UserError
from experiments.rollout.environments import Environments

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.sample import PromptedProblem


class RayJudge(SplitJudge):
    """One environment whose work all judge actors do, as their number `number`."""

    def __init__(self, crew: ActorPool, number: int, version: str, known: Known | None) -> None:
        own = None if known is None else {part: dict(of) for part, of in known.items()}
        super().__init__(len(crew.actors), version, own)
        self.crew, self.number = crew, number
        # (calls of the engines, what each judge has of them, calls of the judges)
        self._begun: deque[tuple[list[Call], list[list], list[Call]]] = deque()

    def begin(self, prompts: Sequence[PromptedProblem], written: list[Call]) -> None:
        """Have judged what the engines are to write, before anything else that is to be judged."""
        owned = [
            [(i, p.problem) for i, p in enumerate(prompts) if owner(p.problem, self.size) == j]
            for j in range(self.size)
        ]
        calls = [
            self.crew.call(j, "judge_written", self.number, own, *written)
            for j, own in enumerate(owned)
        ]
        self._begun.append((written, owned, calls))

    def submit(self, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
        """Begin to judge → what waits for it: as `judge`, but for what was begun elsewhere."""
        calls = self._judging(self.split(submissions))
        return lambda: self.joined(submissions, _results(calls))

    def _judging(self, parts: list[list[Submission]]) -> list[Call | None]:
        """A judge without a part is not asked: it would answer after all that it has begun."""
        return [
            self.crew.call(j, "judge", self.number, part) if part else None
            for j, part in enumerate(parts)
        ]

    def work(self, parts: list[list[Submission]]) -> Iterator[Judged]:
        if not self._begun:
            return _results(self._judging(parts))
        written, owned, calls = self._begun.popleft()
        results = [call.value for call in written]
        if any(_differ(submissions(own, results), p) for own, p in zip(owned, parts, strict=True)):
            raise RuntimeError("other responses are to be judged than those that were begun")
        return _results(calls)

    def tell(self, state: Known) -> None:
        self.crew.all("know", self.number, state)

    def known_to(self, finished: Sequence[Call]) -> Known | None:
        """What an actor knows after these calls, whose results are still to be taken."""
        if self.known is None:
            return None
        known = self._state()
        for call in finished:
            if call.args[0] == self.number and call.method.startswith("judge"):
                merge(known, call.peek()[0][2])
        return known


class SittingJudge(RayJudge):
    """One that can be asked in pieces, where each actor's own environment can."""

    def open_session(self) -> RayJudgingSession:
        """For submissions that come in pieces, from one thread; one session at a time."""
        return RayJudgingSession(self)

    def abandon(self) -> None:
        """From another thread: nobody waits for the judges any more."""
        self.crew.abandon()


class RayJudgingSession:
    """`envs.judge.session.JudgingSession` over judge actors, which begin with what is written while the rest is.

    What is taken last goes with all that the judge was given before: one that took a dead one's
    place judges the whole of it, and the count is that of one.
    """

    def __init__(self, judge: SittingJudge) -> None:
        self._judge, self._calls = judge, []
        self._given: list[list[tuple[int, Submission]]] = [[] for _ in range(judge.size)]

    def judge(
        self, submissions: Iterable[tuple[int, Submission]]
    ) -> Iterator[tuple[int, Judgement]]:
        """Have them begun with; `finish` gives all judgements."""
        parts: list[list[tuple[int, Submission]]] = [[] for _ in self._given]
        for index, submission in submissions:
            parts[owner(submission.problem, len(parts))].append((index, submission))
        for at, (part, given) in enumerate(zip(parts, self._given, strict=True)):
            if part:
                self._calls.append(self._ask(at, "begin", part))
                given += part
        return iter(())

    def finish(self) -> Iterator[tuple[int, Judgement]]:
        """Wait for the judges."""
        given = [sorted(each, key=lambda item: item[0]) for each in self._given]
        last = [self._ask(j, "judge_begun", own) if own else None for j, own in enumerate(given)]
        for call in self._calls:
            call.result()
        for own, judged in zip(given, _results(last), strict=True):
            judgements = self._judge.taken(judged)
            yield from zip((index for index, _ in own), judgements, strict=True)

    def _ask(self, at: int, method: str, own: list[tuple[int, Submission]]) -> Call:
        return self._judge.crew.call(at, method, self._judge.number, own)

    def close(self) -> None:
        """The judges count and remember with their last call."""


@contextmanager
def environments_of(
    crew: ActorPool, config: RunConfig, kind_of: Callable[[dict[str, Any]], type[RayJudge]]
) -> Iterator[Environments]:
    """Environments of these actors; `kind_of` says how theirs, told of, is asked.

    Raises UserError.
    """
    made: list[RayJudge] = []
    settings = (config.task.environment, config.sandbox, config.judge)

    def prepare(new: Any, finished: list[Call]) -> list[Any]:
        known = [(judge.number, judge.known_to(finished)) for judge in made]
        opened = new.open.remote(*settings)
        return [opened, *(new.know.remote(*of) for of in known if of[1] is not None)]

    def make() -> RayJudge:
        made.append(kind_of(first)(crew, len(made), first["version"], first["known"]))
        return made[-1]

    crew.prepare = prepare
    try:
        first, *others = crew.all("open", *settings)
        for other in others:
            _check_alike(crew.setting, first, other)
        yield Environments(make, first["name"], first["strength"])
    finally:
        crew.end("close")


def _check_alike(setting: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raises UserError where two judges could say different things of one program."""
    told = [f"{of['name']} ({of['version']})" for of in (one, other)]
    if told[0] != told[1]:
        raise UserError(
            f"{setting}: the nodes judge differently, {told[0]} and {told[1]}: they need the "
            "same Python, and sandbox=docker or sandbox=embedded for all of them"
        )


def _results(calls: Iterable[Call | None]) -> Iterator[Judged]:
    return (call.result()[0] if call else ([], {}, {}) for call in calls)


def _differ(begun: list[Submission], asked: list[Submission]) -> bool:
    told = [[(s.problem.hash, s.response) for s in of] for of in (begun, asked)]
    return told[0] != told[1]
