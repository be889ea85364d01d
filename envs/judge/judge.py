"""The judge: responses to problems go in, judgements come out, in the same order.

It extracts the program, runs it in the sandbox on the problem's inputs, compares the outputs
outside the sandbox, and caches judgements. The same submissions in the same order give the same
verdicts and counters, whatever the timing of the sandbox's workers: failure counts of tests are
used only from the next session on, and executions after a first failed test are ignored.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import AsyncIterator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from envs.environment import JudgeStats, Submission
from envs.judge.budget import Budget
from envs.judge.checker import comparable
from envs.judge.checker_programs.checker_program import PROGRAM
from envs.judge.checker_programs.checker_runs import CheckerRuns
from envs.judge.checker_programs.testlib import testlib_digest
from envs.judge.rules_version import rules_version
from envs.judge.session import JudgingSession, PendingProgram
from envs.judge.verdict_cache import CachedGrades, VerdictCache
from envs.problem import Judgement, Problem, Verdict
from envs.sandbox.base import Job, Limits, Sandbox

log = logging.getLogger(__name__)

Key = tuple[str, str]  # hashes of the problem and of the program
CACHED_JUDGEMENTS = 100_000  # in memory; the oldest are dropped first


@dataclass
class JudgeConfig:
    """Limits and early stopping. Every field is part of the judge's version."""

    early_stop: bool = True  # stop at the first failed test, which is enough for binary rewards
    # allowance for Python: multiplies the problem's own time limit
    time_factor: PositiveFloat = 2.0
    default_time_limit_s: PositiveFloat = 10.0  # CPU time per test, if the problem names none
    # a right answer that exceeds the limit by at most this share is run once more
    time_margin: NonNegativeFloat = 0.2
    wall_factor: PositiveFloat = 3.0  # wall limit as a multiple of the CPU limit
    # budget of all tests together, as a multiple of one test's limits: of wall time in which the
    # program waits by itself, and of CPU time of tests that end at a time limit
    budget_factor: PositiveFloat = 3.0
    default_memory_limit_mb: PositiveInt = 512  # if the problem names none
    min_memory_limit_mb: PositiveInt = 256  # the interpreter itself needs address space
    output_limit_mb: PositiveInt = 4  # of stdout; at least twice the expected output
    checker_time_limit_s: PositiveFloat = 10.0  # CPU time of a checker program for one output
    checker_memory_limit_mb: PositiveInt = 512  # of a checker program
    # a problem whose checker failed on so many programs is left out: none gets a verdict any more
    max_checker_faults: PositiveInt = 5
    # testlib.h, or its folder, for checkers in C++; null: where headers are installed
    testlib: str | None = None


class Judge:
    """Judge programs in one sandbox, which the caller closes. Use it from one thread at a time.

    `verdicts` is an optional cache on disk of programs that other judges have run. A program
    judged from it counts as if it had been run here.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        config: JudgeConfig | None = None,
        verdicts: VerdictCache | None = None,
    ) -> None:
        self.sandbox, self.verdicts = sandbox, verdicts
        self.config = replace(config or JudgeConfig())
        # the content of testlib.h counts, not its place
        values = asdict(self.config) | {"testlib": testlib_digest(self.config.testlib)}
        settings = repr((sorted(values.items()), sandbox.platform))
        self.version = f"{rules_version()}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"
        self.stats = JudgeStats()
        self.checkers = CheckerRuns(sandbox, self.config, self.stats)
        self._cache: dict[Key, Judgement] = {}
        self._failures: dict[str, list[int]] = {}  # problem hash → failures of each test
        self._judged: dict[str, int] = {}  # problem hash → programs judged
        self._limits: dict[str, tuple[float, Limits]] = {}  # problem hash → as `_limits_of` says
        self._judgeable: set[str] = set()  # hashes of problems that passed the check
        self._checker_faults: dict[str, int] = {}  # problem hash → programs its checker failed on

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judge all, in order.

        Raises ValueError for a problem that cannot be judged (no tests, `needs_checker`, or an
        expected value of a call that is not JSON), and SandboxError if the sandbox fails for good.
        A program on which the infrastructure failed twice gets INFRA_ERROR, which has no reward.
        It is not cached, nor is a verdict that wall time decided.
        """
        judgements = dict(self.iter_judgements(submissions))
        return [judgements[index] for index in range(len(submissions))]

    def state_dict(self) -> dict[str, Any]:
        """Return cached judgements; failures of tests, programs judged, checker faults."""
        failures = {problem: list(counts) for problem, counts in self._failures.items()}
        return {
            "cache": dict(self._cache),
            "failures": failures,
            "judged": dict(self._judged),
            "checker_faults": dict(self._checker_faults),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the state by one of `state_dict`."""
        cache = state["cache"].items()
        self._cache = {key: found for key, found in cache if found.judge_version == self.version}
        self._failures = {problem: list(counts) for problem, counts in state["failures"].items()}
        self._judged = dict(
            state.get("judged", {})
        )  # absent from old checkpoints; affects no verdict
        self._checker_faults = dict(state.get("checker_faults", {}))

    async def stream(
        self, submissions: Sequence[Submission]
    ) -> AsyncIterator[tuple[int, Judgement]]:
        """Yield (index, judgement) as programs end, driving the sandbox from its own thread."""
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
        """Yield (index, judgement) as programs end, every index once. Raises like `judge`."""
        with closing(self.open_session()) as session:
            yield from session.judge(enumerate(submissions))
            yield from session.finish()

    def open_session(self) -> JudgingSession:
        """Open a session for submissions that arrive in pieces. Only one may be open."""
        return JudgingSession(self)

    def abandon(self) -> None:
        """Make the running session fail with a SandboxError. Called from another thread."""
        self.sandbox.abandon()

    def cached_judgement(self, key: Key) -> Judgement | None:
        """Return the judgement of an equal program of an earlier session."""
        return self._cache.get(key)

    def require_judgeable(self, problem: Problem) -> None:
        """Raise ValueError for a problem that cannot be judged."""
        if problem.hash not in self._judgeable:
            _require_judgeable(problem)
            self.checkers.require(problem)
            self._judgeable.add(problem.hash)

    def no_program(self, problem: Problem) -> Judgement:
        """Return the judgement of a response without a program."""
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

    def left_out(self, problem: Problem, program: str) -> Judgement | None:
        """Return the judgement on a problem that is left out, since its checker failed too often.

        None for any other problem.
        """
        faults = self._checker_faults.get(problem.hash, 0)
        if faults < self.config.max_checker_faults:
            return None
        self.stats.infra_errors += 1
        return replace(
            self.no_program(problem),
            verdict=Verdict.INFRA_ERROR,
            program=program,
            detail=f"left out: its checker failed on {faults} programs",
        )

    def plan(self, index: int, problem: Problem, program: str) -> PendingProgram:
        """Prepare a program's run: its limits, and the tests that failed most often first."""
        order = list(range(len(problem.tests)))
        if self.config.early_stop and not problem.in_order and problem.hash in self._failures:
            failures = self._failures[problem.hash]
            order.sort(key=lambda test: -failures[test])
        if problem.hash not in self._limits:
            self._limits[problem.hash] = self._limits_of(problem)
        limit_s, limits = self._limits[problem.hash]
        inputs = tuple(problem.tests[test].input for test in order)
        promising = len(order) > 1 and self._is_promising(problem, order[0])
        job = Job(program, inputs, limits, problem.fn_name, promising)
        share = self.config.budget_factor
        budget = Budget(cpu_s=share * limit_s, idle_s=share * limits.wall_s)
        return PendingProgram(problem, program, order, limit_s, job, [index], budget)

    def _is_promising(self, problem: Problem, first: int) -> bool:
        """Return whether a program will likely pass the test that runs first.

        That is so if the rule of succession gives more than two in three. At about this
        probability, a separate process for the first test costs as much with passing programs as it
        saves with failing ones.
        """
        failures = self._failures.get(problem.hash)
        failed = failures[first] if failures else 0
        passed = self._judged.get(problem.hash, 0) - failed
        return not self.config.early_stop or passed > 2 * failed + 1

    def _limits_of(self, problem: Problem) -> tuple[float, Limits]:
        """Return (CPU limit of the verdict in seconds, the sandbox's limits with a margin)."""
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

    def record(self, key: Key, program: PendingProgram) -> None:
        """Count and cache a judged program."""
        judgement, problem = program.result, program.problem
        self.stats.programs_judged += 1
        self.stats.tests_run += judgement.run
        self.stats.cpu_s += program.cpu_s
        if program.from_cache:
            self.stats.programs_recalled += 1
            self.stats.recalled_s += program.wall_s
        if judgement.verdict is Verdict.INFRA_ERROR:
            self.stats.infra_errors += 1
            if program.checker_fault:
                self._count_checker_fault(problem, judgement.detail)
            return
        self.stats.by_wall_time += judgement.by_wall_time
        if not judgement.by_wall_time:
            self._cache[key] = judgement
        self._judged[problem.hash] = self._judged.get(problem.hash, 0) + 1
        if program.failed_test is not None:
            failures = self._failures.setdefault(problem.hash, [0] * len(program.order))
            failures[program.failed_test] += 1

    def _count_checker_fault(self, problem: Problem, detail: str) -> None:
        self.stats.checker_faults += 1
        faults = self._checker_faults.get(problem.hash, 0) + 1
        self._checker_faults[problem.hash] = faults
        if faults == self.config.max_checker_faults:
            log.warning(
                "problem %s is left out from now on: its checker failed on %d programs "
                "(judge.max_checker_faults), at last: %s",
                *(problem.name, faults, detail),
            )

    def cached_grades(self, key: Key) -> CachedGrades | None:
        """Return the grades on disk of a program, from any judge of the same version."""
        return self.verdicts.get((self.version, *key)) if self.verdicts else None

    def store_grades(self, graded: Sequence[tuple[Key, CachedGrades]]) -> None:
        """Store grades of programs that were run here in the cache on disk."""
        if self.verdicts and graded:
            self.verdicts.add([((self.version, *key), grades) for key, grades in graded])

    def evict(self) -> None:
        """Drop the oldest cached judgements beyond CACHED_JUDGEMENTS."""
        while len(self._cache) > CACHED_JUDGEMENTS:
            del self._cache[next(iter(self._cache))]


def _require_judgeable(problem: Problem) -> None:
    """Raise ValueError if no output could be compared with the expected ones."""
    reason = None
    if not problem.tests:
        reason = "it has no tests"
    elif problem.checker == "needs_checker":
        reason = "it needs a checker of its own"
    elif problem.checker == PROGRAM and problem.checker_program is None:
        reason = "it has no checker program"
    elif not all(comparable(problem.checker, test.output) for test in problem.tests):
        wanted = "JSON" if problem.checker == "call" else "a condition on the result"
        reason = f"an expected value is not {wanted}"
    if reason is not None:
        raise ValueError(f"problem {problem.name} cannot be judged: {reason}")
