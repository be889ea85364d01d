"""Judges that work apart from the loop, in other processes.

A program goes to the judge that its problem belongs to, so that each knows what was said of its
problems before, and all of them count as one would. What a judge learnt and spent comes back with
its judgements; so the loop's side holds all that is known, up to what it has taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field

from envs.environment import (
    Environment,
    JudgeStats,
    Session,
    StatefulEnvironment,
    Submission,
)
from envs.problem import Judgement, Problem
from experiments.seeds import seed_for

Known = dict[str, dict]  # an environment's `state_dict`
Judged = tuple[list[Judgement], dict[str, float], Known]  # what it spent, what it has learnt


def owner(problem: Problem, judges: int) -> int:
    """Which of them judges the problem's programs."""
    return seed_for("judge", problem.hash) % judges


def merge(known: Known, learnt: Known) -> None:
    """Add what was learnt to what is known, in place."""
    for part, new in learnt.items():
        known[part] = known.get(part, {}) | new


@dataclass
class Begun:
    """A session that was begun and not ended."""

    session: Session
    before: dict[str, float]  # what its judge had spent
    taken: set[int] = field(default_factory=set)
    judged: dict[int, Judgement] = field(default_factory=dict)


class Bench:
    """Environments that are alike, by number, where the work is done."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make, self.made = make, []
        self._told: list[Known] = []
        self._begun: dict[int, Begun] = {}

    def add(self) -> None:
        self.made.append(self._make())
        self._told.append({})

    def judged(self, number: int, own: Sequence[Submission]) -> Judged:
        before = asdict(self.made[number].stats)
        judgements = self.made[number].judge(own) if own else []
        return judgements, self._spent(number, before), self._learnt(number)

    def begin(self, number: int, own: Iterable[tuple[int, Submission]]) -> None:
        """Judge some of what `judged_begun` will be asked for, by their numbers in its order."""
        judge = self.made[number]
        if number not in self._begun:
            self._begun[number] = Begun(judge.open_session(), asdict(judge.stats))
        begun = self._begun[number]
        new = [item for item in own if item[0] not in begun.taken]
        begun.taken |= {index for index, _ in new}
        begun.judged.update(begun.session.judge(new))

    def judged_begun(self, number: int, own: Sequence[tuple[int, Submission]]) -> Judged:
        """Judge the rest of these, and those in doubt."""
        self.begin(number, own)
        begun = self._begun.pop(number)
        with closing(begun.session):
            begun.judged.update(begun.session.finish())
        judgements = [begun.judged[index] for index, _ in own]
        return judgements, self._spent(number, begun.before), self._learnt(number)

    def _spent(self, number: int, before: dict[str, float]) -> dict[str, float]:
        now = asdict(self.made[number].stats)
        return {name: value - before[name] for name, value in now.items()}

    def _learnt(self, number: int) -> Known:
        """What the judge knows that it had not told yet."""
        judge = self.made[number]
        if not isinstance(judge, StatefulEnvironment):
            return {}
        now, told = judge.state_dict(), self._told[number]
        self._told[number] = now
        return {
            part: {k: v for k, v in known.items() if told.get(part, {}).get(k) != v}
            for part, known in now.items()
        }

    def know(self, number: int, state: Known) -> None:
        self.made[number].load_state_dict(state)
        self._told[number] = state


class SplitJudge(ABC):
    """On the loop's side: one environment whose work `size` judges do."""

    def __init__(self, size: int, version: str, known: Known | None) -> None:
        """`known`: what such an environment knows when it is new; None where it never learns."""
        self.size, self.version, self.stats, self.known = size, version, JudgeStats(), known

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        parts = self.split(submissions)
        return self.joined(submissions, self.work(parts))

    def split(self, submissions: Sequence[Submission]) -> list[list[Submission]]:
        """Each judge's part."""
        parts: list[list[Submission]] = [[] for _ in range(self.size)]
        for submission in submissions:
            parts[owner(submission.problem, self.size)].append(submission)
        return parts

    def joined(
        self, submissions: Sequence[Submission], judged: Iterable[Judged]
    ) -> list[Judgement]:
        """What the judges said, in order."""
        results = [iter(self.taken(each)) for each in judged]
        return [next(results[owner(s.problem, self.size)]) for s in submissions]

    def taken(self, judged: Judged) -> list[Judgement]:
        """One judge's judgements; what it has spent and learnt is this one's now."""
        judgements, spent, learnt = judged
        for name, value in spent.items():
            setattr(self.stats, name, getattr(self.stats, name) + value)
        merge(self.known, learnt)
        return judgements

    @abstractmethod
    def work(self, parts: list[list[Submission]]) -> Iterable[Judged]:
        """Each judge's part, judged."""

    @abstractmethod
    def tell(self, state: Known) -> None:
        """Have every judge know this and nothing else."""

    def state_dict(self) -> Known:
        """What all judges have learnt; empty where such an environment never learns."""
        return {part: dict(known) for part, known in (self.known or {}).items()}

    def load_state_dict(self, state: Known) -> None:
        """Have every judge know this and nothing else."""
        if self.known is None:
            return
        self.tell(state)
        self.known = {part: dict(known) for part, known in state.items()}
