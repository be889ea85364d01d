"""Judges of a run: opened in this process, and sharded over others.

Programs are sharded by problem, so every judge's cache stays valid and the counters equal those of
one judge. A judge returns its new state and costs with its judgements. The loop's side therefore
has the whole state, up to the results that it has taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from envs.command_line import load_function
from envs.judge.judge import Judge
from envs.judge.verdict_cache import VerdictCache, default_file
from envs.problem import (
    Environment,
    Judgement,
    JudgeStats,
    Problem,
    StatefulEnvironment,
    Submission,
)
from envs.sandbox import open_sandbox
from envs.sandbox.base import SandboxError
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.sample import seed_for


@dataclass(frozen=True)
class Environments:
    """A factory of equal environments, each with its own counters."""

    make: Callable[[], Environment]
    name: str  # of the sandbox
    strength: str  # of its isolation, in words


@contextmanager
def open_environments(config: RunConfig) -> Iterator[Environments]:
    """Open a sandbox if programs are judged; it closes with the block. Raises UserError."""
    if (name := config.task.environment) is not None:
        try:
            make = load_function(name, "task.environment")
            missing = [part for part in ("version", "stats", "judge") if not hasattr(make(), part)]
        except ValueError as error:
            raise UserError(str(error)) from error
        except TypeError as error:
            reason = f"it must be callable without arguments, but {error}"
            raise UserError(f"task.environment={name}: {reason}") from error
        if missing:
            lacks = " and no ".join(missing)
            raise UserError(f"task.environment={name}: its result has no {lacks}")
        yield Environments(make, "none", "no program is run")
        return
    try:
        sandbox = open_sandbox(config.sandbox)
    except SandboxError as error:
        raise UserError(str(error)) from error
    shared = config.sandbox.verdict_cache
    cache = closing(VerdictCache(default_file())) if shared else nullcontext()
    with sandbox, cache as verdicts:
        make_judge = partial(Judge, sandbox, config.judge, verdicts)
        yield Environments(make_judge, sandbox.name, sandbox.strength)


JudgeState = dict[str, dict]  # an environment's `state_dict`


class ShardResult(NamedTuple):
    """One judge's part of some submissions."""

    judgements: list[Judgement]
    spent: dict[str, float]  # increments of JudgeStats
    learnt: JudgeState  # what is new in the judge's state


NO_RESULT = ShardResult([], {}, {})


def shard_of(problem: Problem, judges: int) -> int:
    """Return the index of the judge that a problem's programs go to."""
    return seed_for("judge", problem.hash) % judges


def merge(state: JudgeState, learnt: JudgeState) -> None:
    """Add what a judge has learnt to a state, in place."""
    for part, new in learnt.items():
        state[part] = state.get(part, {}) | new


class JudgeShard:
    """A worker's environments, by number: its shard of each environment of the run."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._environments: list[Environment] = []
        self._reported: dict[int, JudgeState] = {}  # the loop side's copy of the state

    def environment(self, number: int) -> Environment:
        """Return environment `number`, and make those that are missing."""
        while len(self._environments) <= number:
            self._environments.append(self._make())
        return self._environments[number]

    def judge(self, number: int, submissions: Sequence[Submission]) -> ShardResult:
        """Judge with environment `number`."""
        environment = self.environment(number)
        before = asdict(environment.stats)
        judgements = environment.judge(submissions) if submissions else []
        after = asdict(environment.stats)
        spent = {name: value - before[name] for name, value in after.items()}
        if not isinstance(environment, StatefulEnvironment):
            return ShardResult(judgements, spent, {})
        state, reported = environment.state_dict(), self._reported.get(number, {})
        self._reported[number] = state
        learnt = {
            part: {k: v for k, v in entries.items() if reported.get(part, {}).get(k) != v}
            for part, entries in state.items()
        }
        return ShardResult(judgements, spent, learnt)

    def load_state(self, number: int, state: JudgeState) -> None:
        """Replace the state of environment `number`."""
        environment = self.environment(number)
        if isinstance(environment, StatefulEnvironment):
            environment.load_state_dict(state)
        self._reported[number] = state


class ShardedJudge(ABC):
    """The environment on the loop's side, which distributes judging over `size` judges."""

    def __init__(self, size: int, version: str, state: JudgeState | None) -> None:
        """`state`: that of a new environment; None where environments never learn."""
        self.size, self.version, self.stats, self.state = size, version, JudgeStats(), state

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        return self.join(submissions, self.judge_shards(self.split(submissions)))

    def split(self, submissions: Sequence[Submission]) -> list[list[Submission]]:
        """Return each judge's submissions."""
        shards: list[list[Submission]] = [[] for _ in range(self.size)]
        for submission in submissions:
            shards[shard_of(submission.problem, self.size)].append(submission)
        return shards

    def join(
        self, submissions: Sequence[Submission], results: Iterable[ShardResult]
    ) -> list[Judgement]:
        """Return the judgements in the order of the submissions; count what they have cost."""
        judgements = []
        for result in results:
            for name, value in result.spent.items():
                setattr(self.stats, name, getattr(self.stats, name) + value)
            if self.state is not None:
                merge(self.state, result.learnt)
            judgements.append(iter(result.judgements))
        return [next(judgements[shard_of(s.problem, self.size)]) for s in submissions]

    @abstractmethod
    def judge_shards(self, shards: list[list[Submission]]) -> Iterable[ShardResult]:
        """Have each judge judge its shard."""

    @abstractmethod
    def load_shards(self, state: JudgeState) -> None:
        """Replace the state of every judge."""

    def state_dict(self) -> JudgeState:
        """Return the state of all judges; empty where environments never learn."""
        return {part: dict(entries) for part, entries in (self.state or {}).items()}

    def load_state_dict(self, state: JudgeState) -> None:
        """Replace the state of every judge."""
        if self.state is None:
            return
        self.load_shards(state)
        self.state = {part: dict(entries) for part, entries in state.items()}
