"""Run programs of problems with a checker program: each on its tests, then its checker on outputs.

The two take turns, in requests to the sandbox of their own: a program runs on some tests and ends,
then its checker runs on what it printed. With early stopping, a program first runs on one test,
since most programs of a training run fail it. An output that equals the expected one needs no
checker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envs.environment import JudgeStats
from envs.judge.checker_program import (
    OUTPUT_LIMIT_MB,
    PROGRAM,
    Decision,
    Finding,
    checker_input,
    decide,
    python_program,
)
from envs.judge.grading import Grade, grade
from envs.judge.native_program import native_program
from envs.judge.testlib import Toolchain, compile_all, find_toolchain
from envs.problem import CheckerProgram, Problem, Verdict
from envs.sandbox.base import Execution, Job, Limits, Outcome, Sandbox

if TYPE_CHECKING:
    from envs.judge.judge import JudgeConfig
    from envs.judge.session import PendingProgram

PROGRAMS_AT_A_TIME = 32  # whose outputs are held at the same time
HELD_BYTES = 8 << 20  # of a program's outputs, beyond which they are checked first
_NO_VERDICT = (Outcome.INFRA_ERROR, Outcome.STARVED, Outcome.SYNTAX_ERROR)

log = logging.getLogger(__name__)


class CheckerRuns:
    """The checkers of one judge: their programs, and what they decided on malformed outputs."""

    def __init__(self, sandbox: Sandbox, config: JudgeConfig, stats: JudgeStats) -> None:
        """`stats` is charged with the CPU time of checkers, and of programs behind a failure."""
        self.sandbox, self.stats, self.early_stop = sandbox, stats, config.early_stop
        self.limits = Limits(
            cpu_s=config.checker_time_limit_s,
            wall_s=config.checker_time_limit_s * config.wall_factor,
            memory_mb=config.checker_memory_limit_mb,
            output_mb=OUTPUT_LIMIT_MB,
        )
        self._testlib = config.testlib
        self._toolchain: Toolchain | None = None
        self._programs: dict[CheckerProgram, str | Decision] = {}  # a Decision: it has none
        self._copes: dict[tuple[str, int], bool] = {}  # (problem, test) → with the expected output

    def require(self, problem: Problem) -> None:
        """Raise CompilerMissing if the problem's checker needs a compiler that is not here."""
        if problem.checker == PROGRAM and checker_of(problem).language == "testlib":
            self.toolchain()

    def toolchain(self) -> Toolchain:
        """Return the compiler of checkers on testlib. Raises CompilerMissing."""
        if self._toolchain is None:
            toolchain = find_toolchain(self._testlib)
            toolchain.require()
            self._toolchain = toolchain
        return self._toolchain

    def run(self, programs: Mapping[int, PendingProgram]) -> Iterator[tuple[int, list[Execution]]]:
        """Yield (number, executions) as programs end; their grades are set by then."""
        self._prepare(programs.values())
        for pending in programs.values():
            pending.checker_fault = False
        runs = [_Run(number, pending, self.early_stop) for number, pending in programs.items()]
        for first in range(0, len(runs), PROGRAMS_AT_A_TIME):
            left = runs[first : first + PROGRAMS_AT_A_TIME]
            while left:
                self._run_programs([run for run in left if run.next_inputs])
                self._run_checkers([run for run in left if run.unchecked])
                for run in left:
                    if run.ended:
                        self.stats.cpu_s += run.close()
                        yield run.number, run.executions
                left = [run for run in left if not run.ended]

    # ---- preparation ----

    def _prepare(self, programs: Iterable[PendingProgram]) -> None:
        """Make the programs of all checkers that are new."""
        found = dict.fromkeys(checker_of(pending.problem) for pending in programs)
        new = [checker for checker in found if checker not in self._programs]
        sources = [checker.source for checker in new if checker.language == "testlib"]
        if sources:
            log.info("compiling %d checkers, unless they are in the cache folder", len(sources))
        executables = compile_all(self.toolchain(), sources) if sources else {}
        for checker in new:
            if checker.language == "python":
                self._programs[checker] = python_program(checker.source)
                continue
            executable = executables[checker.source]
            self._programs[checker] = (
                native_program(executable)
                if isinstance(executable, bytes)
                else Decision(Finding.FAULT, f"the checker does not compile: {executable}")
            )

    # ---- programs ----

    def _run_programs(self, runs: list[_Run]) -> None:
        """Run programs on their next tests."""
        jobs = [
            replace(
                run.pending.job,
                inputs=run.next_inputs,
                promising=run.promising,
                again=run.pending.rerun,
            )
            for run in runs
        ]
        begun = [len(run.executions) for run in runs]

        def keep_going(index: int, position: int, execution: Execution) -> bool:
            return runs[index].take(begun[index] + position, execution)

        for index, executions in self.sandbox.run(jobs, keep_going) if jobs else ():
            runs[index].executions += executions
            # Not offered to `keep_going`: a program that does not compile, a worker that was lost.
            runs[index].failed |= executions[-1].outcome in _NO_VERDICT

    # ---- checkers ----

    def _run_checkers(self, runs: list[_Run]) -> None:
        """Run checkers on the outputs that wait for them, up to one that ends the program's run."""
        jobs, able = [], []
        for run in runs:
            program = self._programs[run.checker]
            if isinstance(program, Decision):
                run.decide(next(iter(run.unchecked)), program)
                continue
            inputs = [self._input(run, *item) for item in run.unchecked.items()]
            jobs.append(self._job(program, inputs))
            able.append((run, list(run.unchecked)))

        def keep_going(index: int, position: int, execution: Execution) -> bool:
            run, positions = able[index]
            return run.decide(positions[position], decide(run.checker.language, execution))

        for index, executions in self.sandbox.run(jobs, keep_going) if jobs else ():
            self.stats.cpu_s += sum(execution.cpu_s for execution in executions)
            run, positions = able[index]
            position, last = positions[len(executions) - 1], executions[-1]
            # Not offered to `keep_going`, as above.
            if position in run.unchecked and run.crashed is None:
                run.decide(position, decide(run.checker.language, last))
        self._try_expected_outputs([run for run in runs if run.crashed is not None])

    def _try_expected_outputs(self, runs: list[_Run]) -> None:
        """Decide on outputs with which a checker ended with an error.

        Checkers written in Python often raise an exception at malformed outputs. If the checker
        copes with the expected output of the test, then the output is at fault, else the checker.
        """
        jobs, asked = [], []
        for run in runs:
            test = run.test_of_crash
            if (run.pending.problem.hash, test) not in self._copes:
                program = self._programs[run.checker]
                assert isinstance(program, str)
                expected = run.pending.problem.tests[test].output
                jobs.append(self._job(program, [self._input_of(run, test, expected.encode())]))
                asked.append((run.pending.problem.hash, test))
        for index, (execution,) in self.sandbox.run(jobs, lambda *_: True) if jobs else ():
            self.stats.cpu_s += execution.cpu_s
            finding = decide("python", execution).finding
            if finding is not Finding.UNKNOWN:
                self._copes[asked[index]] = finding in (Finding.ACCEPTED, Finding.REJECTED)
        for run in runs:
            run.settle_crash(self._copes.get((run.pending.problem.hash, run.test_of_crash)))

    def _job(self, program: str, inputs: list[bytes]) -> Job:
        return Job(program, tuple(inputs), self.limits, promising=len(inputs) > 1)

    def _input(self, run: _Run, position: int, output: bytes) -> bytes:
        return self._input_of(run, run.pending.order[position], output)

    def _input_of(self, run: _Run, test: int, output: bytes) -> bytes:
        return checker_input(run.checker.language, run.pending.problem.tests[test], output)


@dataclass(eq=False)
class _Run:
    """One program: its executions, and its outputs that wait for the checker."""

    number: int
    pending: PendingProgram
    early_stop: bool
    executions: list[Execution] = field(default_factory=list)
    unchecked: dict[int, bytes] = field(default_factory=dict)  # position → output
    failed: bool = False  # no further test is needed
    stopped_at: int | None = None  # position of the first failure, if judging ends there
    crashed: tuple[int, str] | None = None  # the position where the checker crashed, and how

    @property
    def checker(self) -> CheckerProgram:
        return checker_of(self.pending.problem)

    @property
    def promising(self) -> bool:
        return self.pending.job.promising or bool(self.executions)

    @property
    def next_inputs(self) -> tuple[str | bytes, ...]:
        """The inputs to run on next: the first alone, unless the program will likely pass it."""
        if self.failed or self.unchecked or self.stopped_at is not None:
            return ()
        inputs, done = self.pending.job.inputs, len(self.executions)
        one = self.early_stop and not self.promising
        return inputs[done : done + 1] if one else inputs[done:]

    @property
    def ended(self) -> bool:
        return self.stopped_at is not None or not (self.unchecked or self.next_inputs)

    @property
    def test_of_crash(self) -> int:
        """The test whose output the checker crashed on."""
        assert self.crashed is not None
        return self.pending.order[self.crashed[0]]

    def take(self, position: int, execution: Execution) -> bool:
        """Grade an execution as far as that needs no checker; return whether to go on."""
        if execution.outcome in _NO_VERDICT:
            self.failed = True
            return False
        output, execution.stdout = execution.stdout, b""
        expected = self.pending.problem.tests[self.pending.order[position]].output
        # Graded as if the output were right; the checker may still reject it.
        graded = grade("text", "", self.pending.limit_s, execution)
        graded = self.pending.keep(position, graded, execution)
        finished = execution.outcome is Outcome.FINISHED
        if finished and output.strip() != expected.encode("utf-8", "surrogatepass").strip():
            self.unchecked[position] = output
        wrong = graded.verdict is not Verdict.ACCEPTED
        self.failed |= bool(graded.ended) or (self.early_stop and wrong)
        return not self.failed and sum(map(len, self.unchecked.values())) < HELD_BYTES

    def decide(self, position: int, decision: Decision) -> bool:
        """Take a decision on an output; return whether the checker should go on."""
        if decision.finding is Finding.CRASHED:
            self.crashed = (position, decision.reason)
            return False
        del self.unchecked[position]
        if decision.finding is Finding.ACCEPTED:
            return True
        if decision.finding is Finding.REJECTED:
            self.pending.grades[position] = rejected(self.pending.grades[position], decision)
            self.stopped_at = position if self.early_stop else None
        else:
            self.pending.grades[position] = Grade(
                Verdict.INFRA_ERROR, decision.reason, doubtful=True
            )
            self.pending.checker_fault = decision.finding is Finding.FAULT
            self.stopped_at = position
        return self.stopped_at is None

    def settle_crash(self, copes: bool | None) -> None:
        """Decide on the output with which the checker crashed.

        `copes`: whether it does not crash with the expected one; None if the sandbox failed.
        """
        assert self.crashed is not None
        (position, reason), self.crashed = self.crashed, None
        finding = {True: Finding.REJECTED, False: Finding.FAULT, None: Finding.UNKNOWN}[copes]
        self.decide(position, Decision(finding, reason))

    def close(self) -> float:
        """Drop executions behind the first failure; return their CPU seconds."""
        if self.stopped_at is None:
            return 0.0
        behind = self.executions[self.stopped_at + 1 :]
        del self.executions[self.stopped_at + 1 :]
        return sum(execution.cpu_s for execution in behind)


def rejected(before: Grade, decision: Decision) -> Grade:
    """Return the grade of a rejected output; what wall time decided before stays in force."""
    doubtful = before.doubtful and before.by_wall_time
    return replace(before, verdict=Verdict.WRONG_ANSWER, detail=decision.reason, doubtful=doubtful)


def checker_of(problem: Problem) -> CheckerProgram:
    """Return the checker program of a problem that has one."""
    assert problem.checker_program is not None
    return problem.checker_program
