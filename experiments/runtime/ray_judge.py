"""An environment that distributes judging over Ray actors.

An actor's results and state depend only on its calls. An actor that dies is therefore replaced by
one that gives the same verdicts and counts (`ray_actor_pool.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from envs.environment import Submission
from envs.problem import Judgement, Problem
from experiments.errors import UserError
from experiments.rollout.environments import Environments
from experiments.runtime.ray_actor_pool import ActorPool, Call
from experiments.runtime.ray_workers import JudgeDescription, submissions_of
from experiments.runtime.sharded_judge import (
    NO_RESULT,
    JudgeState,
    ShardedJudge,
    ShardResult,
    merge,
    shard_of,
)

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.sample import PromptedProblem


class Prefetched(NamedTuple):
    """A batch that is judged as soon as it is generated."""

    generating: list[Call]
    prompts: list[list[tuple[int, Problem]]]  # of each judge, numbered in the batch
    judging: list[Call]


class RayJudge(ShardedJudge):
    """Environment `number` of every judge actor."""

    def __init__(self, pool: ActorPool, number: int, version: str, state: JudgeState | None):
        own = None if state is None else {part: dict(entries) for part, entries in state.items()}
        super().__init__(len(pool.actors), version, own)
        self.pool, self.number = pool, number
        self._prefetched: deque[Prefetched] = deque()

    def prefetch(self, prompts: Sequence[PromptedProblem], generating: list[Call]) -> None:
        """Have a batch judged once it is generated, before anything that is submitted later."""
        numbered = list(enumerate(prompts))
        own_prompts = [
            [(i, p.problem) for i, p in numbered if shard_of(p.problem, self.size) == shard]
            for shard in range(self.size)
        ]
        judging = [
            self.pool.call(shard, "judge_generated", self.number, own, *generating)
            for shard, own in enumerate(own_prompts)
        ]
        self._prefetched.append(Prefetched(generating, own_prompts, judging))

    def submit(self, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
        """Start judging; return a function that waits for the judgements.

        Unlike `judge`, this takes nothing that was prefetched.
        """
        calls = self._start(self.split(submissions))
        return lambda: self.join(submissions, _results(calls))

    def _start(self, shards: list[list[Submission]]) -> list[Call | None]:
        """A judge without a shard is not called: it would answer after its prefetched batches."""
        return [
            self.pool.call(index, "judge", self.number, shard) if shard else None
            for index, shard in enumerate(shards)
        ]

    def judge_shards(self, shards: list[list[Submission]]) -> Iterator[ShardResult]:
        if not self._prefetched:
            return _results(self._start(shards))
        batch = self._prefetched.popleft()
        generated = [call.value for call in batch.generating]
        for own, shard in zip(batch.prompts, shards, strict=True):
            if not _same(submissions_of(own, generated), shard):
                raise RuntimeError("the responses to judge differ from the prefetched ones")
        return _results(batch.judging)

    def load_shards(self, state: JudgeState) -> None:
        self.pool.call_all("load_state", self.number, state)

    def state_after(self, finished: Sequence[Call]) -> JudgeState | None:
        """Return an actor's state after these calls, whose results are not taken yet."""
        if self.state is None:
            return None
        state = self.state_dict()
        for call in finished:
            if call.args[0] == self.number and call.method.startswith("judge"):
                result, _ = call.peek()
                merge(state, result.learnt)
        return state


@contextmanager
def open_ray_environments(pool: ActorPool, config: RunConfig) -> Iterator[Environments]:
    """Open the sandboxes of the judge actors; they close with the block. Raises UserError."""
    judges: list[RayJudge] = []
    settings = (config.task.environment, config.sandbox, config.judge)

    def prepare(actor: Any, finished: list[Call]) -> list[Any]:
        states = [(judge.number, judge.state_after(finished)) for judge in judges]
        opened = actor.open.remote(*settings)
        return [
            opened,
            *(actor.load_state.remote(n, state) for n, state in states if state is not None),
        ]

    def make() -> RayJudge:
        judges.append(RayJudge(pool, len(judges), first.version, first.state))
        return judges[-1]

    pool.prepare = prepare
    try:
        first, *others = pool.call_all("open", *settings)
        for other in others:
            _check_alike(first, other)
        yield Environments(make, first.name, first.strength)
    finally:
        pool.end("close")


def _check_alike(one: JudgeDescription, other: JudgeDescription) -> None:
    """Raise UserError if two judges could give one program different verdicts."""
    names = [f"{judge.name} ({judge.version})" for judge in (one, other)]
    if names[0] != names[1]:
        raise UserError(
            f"runtime=ray: the nodes have different judges, {names[0]} and {names[1]}; use the "
            "same Python on all nodes, and sandbox=docker or sandbox=embedded"
        )


def _results(calls: Iterable[Call | None]) -> Iterator[ShardResult]:
    return (call.result()[0] if call else NO_RESULT for call in calls)


def _same(prefetched: list[Submission], submitted: list[Submission]) -> bool:
    one, other = ([(s.problem.hash, s.response) for s in of] for of in (prefetched, submitted))
    return one == other
