"""The judge: responses to problems go in, judgements come out, in the same order.

It extracts the program, runs it in the sandbox on the problem's inputs, compares the outputs
outside the sandbox, and caches judgements. Submissions arrive at once or, in a session, in pieces.

The order of a program's tests depends only on what the judge knew when the session was opened, and
new verdicts are stored when it closes, in the order of submission. So the same submissions in the
same order give the same verdicts and counters, however they were cut into pieces and whatever the
timing of the sandbox's workers.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from envs.judge.checker_program import OUTPUT_LIMIT_MB, PROGRAM, CheckerRuns
from envs.judge.checkers import comparable
from envs.judge.extract import extract_program
from envs.judge.grading import Budget, Grade, PendingProgram, summarize
from envs.judge.testlib import testlib_digest
from envs.judge.verdict_cache import CachedGrades, VerdictCache, rules_version
from envs.problem import Judgement, JudgeStats, Problem, Submission, Verdict
from envs.sandbox.base import Execution, Job, Limits, Outcome, Sandbox

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


@dataclass
class ProblemRecord:
    """What the judge has learnt about one problem."""

    judged: int = 0  # programs
    failures: dict[int, int] = field(default_factory=dict)  # test → programs that it failed
    checker_faults: int = 0  # programs on which the problem's checker program failed


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
        self.config = config = replace(config or JudgeConfig())
        # the content of testlib.h counts, not its place
        values = asdict(config) | {"testlib": testlib_digest(config.testlib)}
        settings = repr((sorted(values.items()), sandbox.platform))
        self.version = f"{rules_version()}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"
        self.stats = JudgeStats()
        checker_limits = Limits(
            cpu_s=config.checker_time_limit_s,
            wall_s=config.checker_time_limit_s * config.wall_factor,
            memory_mb=config.checker_memory_limit_mb,
            output_mb=OUTPUT_LIMIT_MB,
        )
        about = (self.stats, config.early_stop, config.testlib)
        self.checkers = CheckerRuns(sandbox, checker_limits, *about)
        self.cache: dict[Key, Judgement] = {}
        self._records: dict[str, ProblemRecord] = {}  # by the problem's hash
        self._judgeable: set[str] = set()  # hashes of problems that passed the check

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judge all, in order.

        Raises ValueError for a problem that cannot be judged (no tests, `needs_checker`, or an
        expected value of a call that is not JSON), and SandboxError if the sandbox fails for good.
        A program on which the infrastructure failed twice gets INFRA_ERROR, which has no reward.
        It is not cached, nor is a verdict that wall time decided.
        """
        judgements = dict(self.iter_judgements(submissions))
        return [judgements[index] for index in range(len(submissions))]

    def iter_judgements(self, submissions: Sequence[Submission]) -> Iterator[tuple[int, Judgement]]:
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

    def state_dict(self) -> dict[str, Any]:
        """Return cached judgements, and what was learnt about each problem."""
        records = {problem: asdict(record) for problem, record in self._records.items()}
        return {"cache": dict(self.cache), "problems": records}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the state by one of `state_dict`."""
        cache = state["cache"].items()
        self.cache = {key: found for key, found in cache if found.judge_version == self.version}
        self._records = {
            problem: ProblemRecord(**record) for problem, record in state["problems"].items()
        }

    def record(self, problem: Problem) -> ProblemRecord:
        """Return what the judge has learnt about a problem."""
        return self._records.setdefault(problem.hash, ProblemRecord())

    def require_judgeable(self, problem: Problem) -> None:
        """Raise ValueError if no output could be compared with the expected ones."""
        if problem.hash in self._judgeable:
            return
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
        if problem.checker == PROGRAM:
            self.checkers.require(problem)
        self._judgeable.add(problem.hash)

    def plan(self, index: int, problem: Problem, program: str) -> PendingProgram:
        """Prepare a program's run: its limits, and the tests that failed most often first."""
        config, record = self.config, self.record(problem)
        order = list(range(len(problem.tests)))
        if config.early_stop and not problem.in_order:
            order.sort(key=lambda test: -record.failures.get(test, 0))
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
        # Promising: by the rule of succession, it will pass its first test with a probability of
        # more than 2 in 3. At about this probability, a separate process for the first test costs
        # as much with passing programs as it saves with failing ones.
        failed = record.failures.get(order[0], 0)
        passed = record.judged - failed
        promising = len(order) > 1 and (not config.early_stop or passed > 2 * failed + 1)
        inputs = tuple(problem.tests[test].input for test in order)
        job = Job(program, inputs, limits, problem.fn_name, promising)
        share = config.budget_factor
        budget = Budget(cpu_s=share * limit_s, idle_s=share * limits.wall_s)
        return PendingProgram(problem, program, order, limit_s, job, [index], budget)


class JudgingSession:
    """Opened by `Judge.open_session`; must be closed. Use it from one thread at a time."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._programs: dict[Key, PendingProgram] = {}
        self._doubtful: list[PendingProgram] = []

    def judge(
        self, submissions: Iterable[tuple[int, Submission]]
    ) -> Iterator[tuple[int, Judgement]]:
        """Yield (index, judgement) as programs end; some doubtful ones may wait for `finish`."""
        to_run: list[PendingProgram] = []
        answered: list[tuple[int, Judgement]] = []
        for index, submission in submissions:
            answered += self._admit(index, submission, to_run)
        yield from answered
        begin = ended = time.monotonic()
        for pending in self._execute(to_run):
            ended = time.monotonic()
            yield from pending.answers()
        for pending in to_run:
            pending.wall_s = (ended - begin) / len(to_run)

    def finish(self) -> Iterator[tuple[int, Judgement]]:
        """Run programs once more that are still in doubt. Nothing may follow."""
        while self._doubtful:
            programs, self._doubtful = self._doubtful, []
            for pending in self._execute(sorted(programs, key=lambda one: min(one.waiting))):
                yield from pending.answers()

    def close(self) -> None:
        """Count and remember the judged programs, in the order of submission."""
        judge = self._judge
        judged = [(key, one, one.judgement) for key, one in self._programs.items() if one.judgement]
        for key, pending, found in sorted(judged, key=lambda item: min(item[1].waiting)):
            self._record(key, pending, found)
        on_disk = [
            ((judge.version, *key), CachedGrades(pending.reliable, pending.wall_s))
            for key, pending, found in judged
            if not (pending.rerun or pending.from_cache or found.by_wall_time)
        ]
        if judge.verdicts and on_disk:
            judge.verdicts.add(on_disk)
        while len(judge.cache) > CACHED_JUDGEMENTS:
            del judge.cache[next(iter(judge.cache))]
        self._programs.clear()

    def _record(self, key: Key, pending: PendingProgram, found: Judgement) -> None:
        """Count and cache a judged program."""
        judge, stats, record = self._judge, self._judge.stats, self._judge.record(pending.problem)
        stats.programs_judged += 1
        stats.tests_run += found.run
        stats.cpu_s += pending.cpu_s
        if pending.from_cache:
            stats.programs_recalled += 1
            stats.recalled_s += pending.wall_s
        if found.verdict is Verdict.INFRA_ERROR:
            stats.infra_errors += 1
            stats.checker_faults += pending.checker_fault
            record.checker_faults += pending.checker_fault
            if pending.checker_fault and record.checker_faults == judge.config.max_checker_faults:
                log.warning(
                    "problem %s is left out from now on: its checker failed on %d programs "
                    "(judge.max_checker_faults), at last: %s",
                    *(pending.problem.name, record.checker_faults, found.detail),
                )
            return
        stats.by_wall_time += found.by_wall_time
        if not found.by_wall_time:
            judge.cache[key] = found
        record.judged += 1
        if (test := pending.failed_test) is not None:
            record.failures[test] = record.failures.get(test, 0) + 1

    def _admit(
        self, index: int, submission: Submission, to_run: list[PendingProgram]
    ) -> list[tuple[int, Judgement]]:
        """Answer from memory or disk, join an equal pending program, or add a program to run."""
        judge, stats, problem = self._judge, self._judge.stats, submission.problem
        judge.require_judgeable(problem)
        stats.submissions += 1
        program = extract_program(submission.response)
        if program is None:
            stats.without_program += 1
            grade = Grade(Verdict.SYNTAX_ERROR, "no program in the response")
            return [(index, self._unrun(problem, "", grade))]
        faults = judge.record(problem).checker_faults
        if faults >= judge.config.max_checker_faults:
            stats.infra_errors += 1
            detail = f"left out: its checker failed on {faults} programs"
            return [(index, self._unrun(problem, program, Grade(Verdict.INFRA_ERROR, detail)))]
        key = (problem.hash, hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest())
        if (known := judge.cache.get(key)) is not None:
            stats.programs_cached += 1
            return [(index, known)]
        if (pending := self._programs.get(key)) is not None:
            stats.programs_cached += 1
            pending.waiting.append(index)
            return [] if pending.judgement is None else [(index, pending.judgement)]
        pending = self._programs[key] = judge.plan(index, problem, program)
        cached = judge.verdicts.get((judge.version, *key)) if judge.verdicts else None
        if cached is not None and self._judge_from_cache(pending, cached):
            return pending.answers()
        to_run.append(pending)
        return []

    def _unrun(self, problem: Problem, program: str, grade: Grade) -> Judgement:
        """Return the judgement of a response whose program, if there is one, does not run."""
        judgement, _, _ = summarize(
            *(problem, program, [grade], [0]), early_stop=True, judge_version=self._judge.version
        )
        return replace(judgement, exception="")

    def _judge_from_cache(self, pending: PendingProgram, cached: CachedGrades) -> bool:
        """Judge from grades on disk if they cover every test that a run would reach."""
        graded_tests = [
            graded for graded in cached.tests.values() if graded[0].verdict is Verdict.SYNTAX_ERROR
        ][:1]
        budget = pending.budget.fresh()
        for test in () if graded_tests else pending.order:
            if test not in cached.tests:
                return False
            grade, cpu_s = cached.tests[test]
            grade = budget.charge(grade, cpu_s, idle_s=0.0)  # with more, it would not be stored
            graded_tests.append((grade, cpu_s))
            failed = grade.verdict is not Verdict.ACCEPTED
            if grade.ended or (failed and self._judge.config.early_stop):
                break
        pending.cpu_s = sum(cpu_s for _, cpu_s in graded_tests)
        pending.wall_s, pending.from_cache = cached.wall_s, True
        self._set_judgement(pending, [grade for grade, _ in graded_tests])
        return True

    def _execute(self, programs: Sequence[PendingProgram]) -> Iterator[PendingProgram]:
        """Run programs, at last those of problems with a checker program; yield them when judged.

        Those whose first run is in doubt wait for `finish`, when the machine is less busy.
        """
        yield from self._compare([one for one in programs if one.problem.checker != PROGRAM])
        checked = {n: one for n, one in enumerate(programs) if one.problem.checker == PROGRAM}
        for number, executions in self._judge.checkers.run(checked) if checked else ():
            if self._is_judged(checked[number], executions):
                yield checked[number]
            else:
                self._doubtful.append(checked[number])

    def _compare(self, programs: list[PendingProgram]) -> Iterator[PendingProgram]:
        """Run programs whose outputs are compared with the expected ones."""
        sandbox, early_stop = self._judge.sandbox, self._judge.config.early_stop
        jobs = [one.job for one in programs]

        def keep_going(number: int, position: int, execution: Execution) -> bool:
            if execution.outcome in (Outcome.INFRA_ERROR, Outcome.STARVED, Outcome.SYNTAX_ERROR):
                return False
            grade = programs[number].grade(position, execution)
            return not grade.ended and (grade.verdict is Verdict.ACCEPTED or not early_stop)

        for number, executions in sandbox.run(jobs, keep_going) if jobs else ():
            if self._is_judged(programs[number], executions):
                yield programs[number]
            else:
                self._doubtful.append(programs[number])

    def _is_judged(self, pending: PendingProgram, executions: list[Execution]) -> bool:
        """Judge a program by its executions; return False if it has to run once more."""
        pending.cpu_s += sum(execution.used_s for execution in executions)
        grades = [pending.grade(*item) for item in enumerate(executions)]
        pending.reliable = {
            test: (grade, execution.used_s)
            for test, grade, execution in zip(pending.order, grades, executions, strict=False)
            if not (grade.doubtful or grade.by_wall_time)
        }
        pending.grades.clear()
        pending.budget = pending.budget.fresh()
        # After another doubt a kill may come from outside too; only two are the program's own.
        killed = any(execution.killed for execution in executions) and not pending.killed
        pending.killed |= killed
        if not self._set_judgement(pending, grades) or (pending.rerun and not killed):
            return True
        pending.judgement, pending.rerun = None, True
        self._judge.stats.judged_again += 1
        return False

    def _set_judgement(self, pending: PendingProgram, grades: list[Grade]) -> bool:
        """Set the judgement from the grades, in the program's order of tests; True if in doubt."""
        pending.judgement, pending.failed_test, doubtful = summarize(
            *(pending.problem, pending.program, grades, pending.order),
            early_stop=self._judge.config.early_stop,
            cpu_s=pending.cpu_s,
            judge_version=self._judge.version,
        )
        return doubtful
