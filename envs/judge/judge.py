"""The judge: responses to problems go in, judgements come out, in the same order.

It extracts the program, has the sandbox run it on the problem's inputs, compares outside the
sandbox, and remembers what it has judged. The same submissions in the same order give the same
verdicts and counters, however the sandbox's workers take turns: what is learnt about tests is used
only from the next call on, and whatever ran beyond a program's first failed test is not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from envs.environment import JudgeStats, Submission
from envs.judge.checker import comparable
from envs.judge.session import JudgingSession, PendingProgram
from envs.judge.verdict_cache import Known, VerdictCache
from envs.problem import Judgement, Problem, Verdict
from envs.sandbox.base import Job, Limits, Sandbox

RULES_VERSION = 5  # raise it with every change to extraction, checkers, limits or verdicts
CACHED_JUDGEMENTS = 100_000  # the oldest go first


@dataclass
class JudgeConfig:
    """Limits and shortcuts. Every field is part of the judge's version."""

    early_stop: bool = True  # stop a program at its first failed test: binary rewards need no more
    time_factor: PositiveFloat = 2.0  # Python's allowance: times the problem's own time limit
    default_time_limit_s: PositiveFloat = 10.0  # of CPU, a test, where the problem names no limit
    # up to this share over the limit, a right answer is judged once more
    time_margin: NonNegativeFloat = 0.2
    wall_factor: PositiveFloat = 3.0  # wall limit as a multiple of the CPU limit
    default_memory_limit_mb: PositiveInt = 512  # where the problem names no limit
    min_memory_limit_mb: PositiveInt = 256  # the interpreter itself needs address space
    output_limit_mb: PositiveInt = 4  # of stdout; raised where twice the expected output needs more


class Judge:
    """Judges with one sandbox, which it does not own. Not for use from two threads at once.

    `verdicts`, where given, says what programs came to that another judge ran; they count as if
    this one had run them.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        config: JudgeConfig | None = None,
        verdicts: VerdictCache | None = None,
    ) -> None:
        self.sandbox, self.verdicts = sandbox, verdicts
        self.config = replace(config or JudgeConfig())
        rules = repr((RULES_VERSION, sorted(asdict(self.config).items()), sandbox.platform))
        self.version = f"{RULES_VERSION}-{hashlib.sha256(rules.encode()).hexdigest()[:8]}"
        self.stats = JudgeStats()
        self._cache: dict[tuple[str, str], Judgement] = {}
        self._failures: dict[str, list[int]] = {}  # problem hash → failures seen of each test
        self._judged: dict[str, int] = {}  # problem hash → programs judged
        self._judgeable: set[str] = set()  # hashes of problems that were looked at

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judge all, in order.

        Raises ValueError for a problem that cannot be judged (no tests, `needs_checker`, or a
        call's expected value that is no JSON) and SandboxError if the sandbox cannot go on. A
        program that the infrastructure failed twice has the verdict INFRA_ERROR, which is neither
        cached nor a reward.
        """
        judgements = dict(self.iter_judgements(submissions))
        return [judgements[index] for index in range(len(submissions))]

    def state_dict(self) -> dict[str, Any]:
        """What it has learnt; another judge with the same knowledge goes on as this one would."""
        failures = {problem: list(counts) for problem, counts in self._failures.items()}
        return {"cache": dict(self._cache), "failures": failures, "judged": dict(self._judged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Know what `state_dict` held, and nothing else."""
        self._cache = dict(state["cache"])
        self._failures = {problem: list(counts) for problem, counts in state["failures"].items()}
        self._judged = dict(state.get("judged", {}))  # not counted before; decides no verdict

    async def stream(
        self, submissions: Sequence[Submission]
    ) -> AsyncIterator[tuple[int, Judgement]]:
        """Yield (index, judgement) as programs end; the sandbox is driven from one thread."""
        results = self.iter_judgements(submissions)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge") as thread:
            try:
                while (item := await loop.run_in_executor(thread, next, results, None)) is not None:
                    yield item
            finally:
                await loop.run_in_executor(thread, results.close)

    def iter_judgements(
        self, submissions: Sequence[Submission]
    ) -> Generator[tuple[int, Judgement], None, None]:
        """Yield (index, judgement) as programs end, every index once. Raises as `judge` does."""
        with closing(self.open_session()) as session:
            yield from session.judge(enumerate(submissions))
            yield from session.finish()

    def open_session(self) -> JudgingSession:
        """For submissions that come in pieces: what `judge` does, in steps; one at a time."""
        return JudgingSession(self)

    def abandon(self) -> None:
        """From another thread: have what runs now end with a SandboxError."""
        self.sandbox.abandon()

    def known(self, key: tuple[str, str]) -> Judgement | None:
        """Of an equal program, judged in an earlier sitting; the key is two hashes."""
        return self._cache.get(key)

    def require_judgeable(self, problem: Problem) -> None:
        """Raise ValueError for a problem that cannot be judged."""
        if problem.hash not in self._judgeable:
            _require_judgeable(problem)
            self._judgeable.add(problem.hash)

    def no_program(self, problem: Problem) -> Judgement:
        """Of a response that holds none."""
        return Judgement(
            verdict=Verdict.SYNTAX_ERROR,
            passed=0,
            total=len(problem.tests),
            run=0,
            program="",
            detail="no program in the response",
            problem_hash=problem.hash,
            judge_version=self.version,
        )

    def plan(self, index: int, problem: Problem, program: str) -> PendingProgram:
        """How a program is to be run: the tests that failed most often first, and its limits."""
        order = list(range(len(problem.tests)))
        if self.config.early_stop and problem.hash in self._failures:
            failures = self._failures[problem.hash]
            order.sort(key=lambda test: -failures[test])
        limit_s, limits = self._limits(problem)
        inputs = tuple(problem.tests[test].input for test in order)
        promising = len(order) > 1 and self._promises(problem, order[0])
        job = Job(program, inputs, limits, problem.fn_name, promising)
        return PendingProgram(problem, program, order, limit_s, job, [index])

    def _promises(self, problem: Problem, first: int) -> bool:
        """Whether a program will likely run on more than the test that comes first.

        By the rule of succession, in more than two of three cases: about there, what the process
        for that test alone costs a program that passes is what it saves with one that fails.
        """
        failures = self._failures.get(problem.hash)
        failed = failures[first] if failures else 0
        passed = self._judged.get(problem.hash, 0) - failed
        return not self.config.early_stop or passed > 2 * failed + 1

    def _limits(self, problem: Problem) -> tuple[float, Limits]:
        """(the CPU limit of a verdict, what the sandbox enforces: the limit plus its margin)."""
        config = self.config
        limit_s = config.default_time_limit_s
        if problem.time_limit_s is not None:
            limit_s = problem.time_limit_s * config.time_factor
        memory_mb = problem.memory_limit_mb or config.default_memory_limit_mb
        expected_mb = max(len(test.output) for test in problem.tests) / 2**20
        limits = Limits(
            cpu_s=limit_s * (1 + config.time_margin),
            wall_s=limit_s * (1 + config.time_margin) * config.wall_factor,
            memory_mb=max(memory_mb, config.min_memory_limit_mb),
            output_mb=max(config.output_limit_mb, math.ceil(2 * expected_mb)),
        )
        return limit_s, limits

    def learn(self, key: tuple[str, str], plan: PendingProgram) -> None:
        """Count and remember a program that was judged."""
        self.stats.programs_judged += 1
        self.stats.tests_run += plan.judgement.run
        self.stats.cpu_s += plan.cpu_s
        if plan.recalled:
            self.stats.programs_recalled += 1
            self.stats.recalled_s += plan.wall_s
        if plan.judgement.verdict is Verdict.INFRA_ERROR:
            self.stats.infra_errors += 1
            return
        self._cache[key] = plan.judgement
        self._judged[plan.problem.hash] = self._judged.get(plan.problem.hash, 0) + 1
        if plan.failed_test is not None:
            failures = self._failures.setdefault(plan.problem.hash, [0] * len(plan.order))
            failures[plan.failed_test] += 1

    def recall(self, key: tuple[str, str]) -> Known | None:
        """What another judge's run of the program came to, as far as it is on disk."""
        return self.verdicts.of(self._lasting(key)) if self.verdicts else None

    def keep(self, ran: Sequence[tuple[tuple[str, str], Known]]) -> None:
        """Put on disk what programs came to that were run here."""
        if self.verdicts and ran:
            self.verdicts.keep([(self._lasting(key), known) for key, known in ran])

    def _lasting(self, key: tuple[str, str]) -> tuple[str, str, str]:
        return (self.version, *key)

    def forget(self) -> None:
        """Keep CACHED_JUDGEMENTS: the oldest go."""
        while len(self._cache) > CACHED_JUDGEMENTS:
            del self._cache[next(iter(self._cache))]


def _require_judgeable(problem: Problem) -> None:
    """Raise ValueError where no output could be compared with what is expected."""
    why = None
    if not problem.tests:
        why = "it has no tests"
    elif problem.checker == "needs_checker":
        why = "it needs a checker of its own"
    elif not all(comparable(problem.checker, test.output) for test in problem.tests):
        why = "an expected value is not JSON"
    if why is not None:
        raise ValueError(f"problem {problem.name} cannot be judged: {why}")
