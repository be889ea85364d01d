"""Run programs of problems with a checker program: each on its tests, then its checker on outputs.

The two take turns, in requests to the sandbox of their own: a program runs on some tests and ends,
then its checker runs on what it printed. With early stopping, a program first runs on one test,
since most programs of a training run fail it. An output that equals the expected one needs no
checker.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from envs.environment import JudgeStats
from envs.judge.checker_programs.checked_program import NO_VERDICT, CheckedProgram, checker_of
from envs.judge.checker_programs.checker_program import (
    OUTPUT_LIMIT_MB,
    PROGRAM,
    Decision,
    Finding,
    decide,
    python_program,
)
from envs.judge.checker_programs.testlib import Toolchain, compile_all, find_toolchain
from envs.judge.native_program import native_program
from envs.problem import CheckerProgram, Problem
from envs.sandbox.base import Execution, Job, Limits, Outcome, Sandbox

if TYPE_CHECKING:
    from envs.judge.judge import JudgeConfig
    from envs.judge.session import PendingProgram

PROGRAMS_AT_A_TIME = 32  # whose outputs are held at the same time
KEPT_CHECKERS = 64  # ready to run: an executable takes a megabyte
PROGRAMS_A_START = 16  # whose outputs are checked after one start of their checker

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
        self._programs: dict[CheckerProgram, str] = {}
        self._broken: dict[CheckerProgram, Decision] = {}  # those that do not compile
        # (problem, test) → share of its CPU limit in which the checker decides on the expected
        # output; infinity if it does not
        self._copes: dict[tuple[str, int], float] = {}

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
        runs = [
            CheckedProgram(number, pending, self.early_stop) for number, pending in programs.items()
        ]
        for first in range(0, len(runs), PROGRAMS_AT_A_TIME):
            left = runs[first : first + PROGRAMS_AT_A_TIME]
            self._prepare(left)
            while left:
                self._run_programs([run for run in left if run.next_inputs])
                self._run_checkers([run for run in left if run.unchecked])
                for run in left:
                    if run.ended:
                        self.stats.cpu_s += run.close()
                        yield run.number, run.executions
                left = [run for run in left if not run.ended]

    # ---- preparation ----

    def _prepare(self, runs: Iterable[CheckedProgram]) -> None:
        """Make the programs of all checkers that are new."""
        found = dict.fromkeys(run.checker for run in runs)
        new = [checker for checker in found if checker not in self._programs]
        if len(self._programs) + len(new) > KEPT_CHECKERS:
            self._programs = {one: self._programs[one] for one in found if one in self._programs}
        sources = [
            checker.source
            for checker in new
            if checker.language == "testlib" and checker not in self._broken
        ]
        if sources:
            log.info("compiling %d checkers, unless they are in the cache folder", len(sources))
        executables = compile_all(self.toolchain(), sources) if sources else {}
        for checker in new:
            if checker.language == "python":
                self._programs[checker] = python_program(checker.source)
            elif isinstance(executable := executables.get(checker.source), bytes):
                self._programs[checker] = native_program(executable)
            elif executable is not None:
                self._broken[checker] = Decision(
                    Finding.FAULT, f"the checker does not compile: {executable}"
                )

    # ---- programs ----

    def _run_programs(self, runs: list[CheckedProgram]) -> None:
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
            runs[index].failed |= executions[-1].outcome in NO_VERDICT

    # ---- checkers ----

    def _run_checkers(self, runs: list[CheckedProgram]) -> None:
        """Run checkers on the outputs that wait for them, up to one that ends the program's run."""
        jobs, asked = [], []
        for batch in _batches(runs):
            first, _ = batch[0]
            if decision := self._broken.get(first.checker):
                for run, position in batch:
                    if not run.ended:
                        run.decide(position, decision)
                continue
            jobs.append(
                self._job(
                    self._programs[first.checker], [run.checker_input(at) for run, at in batch]
                )
            )
            asked.append(batch)

        def keep_going(index: int, number: int, execution: Execution) -> bool:
            run, position = asked[index][number]
            last_run, _ = asked[index][-1]
            goes_on = run.decide(position, self._decide(run, execution))
            return goes_on or last_run is not run

        for index, executions in self.sandbox.run(jobs, keep_going) if jobs else ():
            self.stats.cpu_s += sum(execution.cpu_s for execution in executions)
            run, position = asked[index][len(executions) - 1]
            # Not offered to `keep_going`, as above.
            if position in run.unchecked and run.crashed is None:
                run.decide(position, self._decide(run, executions[-1]))
        self._try_expected_outputs([run for run in runs if run.crashed is not None])

    def _try_expected_outputs(self, runs: list[CheckedProgram]) -> None:
        """Decide on outputs with which a checker ended without a decision.

        Checkers written in Python often raise an exception at malformed outputs, and no checker is
        made for outputs that are meant to exhaust it. If the checker copes with the expected output
        of the test, then the output is at fault, else the checker. Otherwise a program could get
        rid of a problem that it fails.
        """
        new = {run.crash_key: run for run in runs if run.crash_key not in self._copes}
        jobs = [
            self._job(self._programs[run.checker], [run.expected_input()]) for run in new.values()
        ]
        tried, now = list(new.items()), dict(self._copes)
        for index, (execution, *_) in self.sandbox.run(jobs, lambda *_: True) if jobs else ():
            key, run = tried[index]
            self.stats.cpu_s += execution.cpu_s
            decision = self._decide(run, execution)
            if decision.finding is not Finding.UNKNOWN:
                decides = decision.finding in (Finding.ACCEPTED, Finding.REJECTED)
                now[key] = execution.cpu_s / self.limits.cpu_s if decides else math.inf
                if not decision.by_wall_time:
                    self._copes[key] = now[key]
        for run in runs:
            run.settle_crash(now.get(run.crash_key))

    def _decide(self, run: CheckedProgram, execution: Execution) -> Decision:
        decision = decide(run.checker.language, execution)
        timed_out = execution.outcome is Outcome.TIME_LIMIT
        by_wall_time = timed_out and execution.cpu_s <= self.limits.cpu_s
        return replace(decision, by_wall_time=by_wall_time)

    def _job(self, program: str, inputs: list[bytes]) -> Job:
        return Job(program, tuple(inputs), self.limits, promising=len(inputs) > 1)


def _batches(runs: list[CheckedProgram]) -> list[list[tuple[CheckedProgram, int]]]:
    """Return (program, position) of waiting outputs, for one run of a checker each.

    Starting a checker takes longer than running it. So programs that wait for a single decision
    share a start.
    """
    single: dict[CheckerProgram, list[tuple[CheckedProgram, int]]] = {}
    batches = []
    for run in runs:
        items = [(run, position) for position in run.unchecked]
        if len(items) > 1:
            batches.append(items)
        else:
            single.setdefault(run.checker, []).extend(items)
    for items in single.values():
        batches += [items[i : i + PROGRAMS_A_START] for i in range(0, len(items), PROGRAMS_A_START)]
    return batches
