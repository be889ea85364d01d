"""Checker programs: programs that decide whether an output is right, run as jobs of the sandbox.

A checker has the rights and limits of a contestant's program. Its input holds three texts: the
test's input, the expected output and the program's output. It finds them as files in its own
memory: nothing is writable in a sandbox. A job of its own runs after the judged program has ended,
so that program never shares a process with a checker or an expected output.

The two take turns: a program runs on some tests, then its checker on what it printed. With early
stopping, a program first runs on one test, since most programs of a training run fail it. An output
that equals the expected one needs no checker.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from envs.judge.checkers import as_bytes
from envs.judge.grading import Grade, PendingProgram, grade, kept_output
from envs.judge.testlib import Toolchain, compile_all, find_toolchain, native_program
from envs.messages import readable
from envs.problem import CheckerProgram, JudgeStats, Problem, Test, Verdict
from envs.sandbox.base import Execution, Job, Limits, Outcome, Sandbox

PROGRAM = "program"  # the checker of a problem that a checker program decides
OUTPUT_LIMIT_MB = 1  # of a checker's stdout, of which the last word counts
# The names that open-r1/codeforces documents, in the order of its arguments.
PYTHON_FILES = ("input.txt", "correct_output.txt", "solution_output.txt")
PROGRAMS_AT_A_TIME = 32  # whose outputs are held at the same time
HELD_BYTES = 8 << 20  # of a program's outputs, beyond which they are checked first
# An output that is longer than both, as a multiple of the test's input and expected output together
# and in bytes, is made to exhaust a checker. Answers of contests with many steps stay below.
LONGER_TIMES, LONGER_BYTES = 64, 1 << 18
KEPT_CHECKERS = 64  # ready to run: an executable takes a megabyte
PROGRAMS_A_START = 16  # whose outputs are checked after one start of their checker
# A checker that takes a larger share of its limit with the expected output is too slow itself.
SLOW_SHARE = 0.5
NO_VERDICT = (Outcome.INFRA_ERROR, Outcome.STARVED, Outcome.SYNTAX_ERROR)
_MAX_REASON_CHARS = 200

# A text without one of these holds finite numbers alone: letters of a NaN, an infinity or an
# exponent, digits of other scripts, very many digits.
_PERHAPS_NOT_FINITE = re.compile(rb"[nNeE\x80-\xff]|(?<![0-9_.])[0-9_.]{309}")

# Python checkers open their files by name, or ask for their sizes. Python's own limit on the digits
# of an integer is in force again, as where such checkers are written: an output of a million digits
# would take a checker its whole time.
_PYTHON_FILES_IN_MEMORY = """\
def _open_files_in_memory(names):
    import builtins, io, os, stat, sys

    data = sys.stdin.buffer.read()
    sizes, _, data = data.partition(b"\\n")
    files = {}
    for name, size in zip(names, map(int, sizes.split())):
        files[name], data = data[:size], data[size:]
    sys.set_int_max_str_digits(max(4300, *(len(files[name]) for name in names[:2])))
    open_plain, stat_plain = builtins.open, os.stat

    def find(path):
        known = isinstance(path, (str, os.PathLike))
        return files.get(os.path.basename(os.fspath(path))) if known else None

    def open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *others):
        content = find(file)
        if content is None:
            return open_plain(file, mode, buffering, encoding, errors, newline, *others)
        if set(mode) & set("wax+"):
            raise PermissionError(f"read-only: {file!r}")
        raw = io.BufferedReader(io.BytesIO(content))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding, errors, newline)

    def stat_file(path, **options):
        content = find(path)
        if content is None:
            return stat_plain(path, **options)
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, len(content), 0, 0, 0))

    builtins.open = io.open = open
    os.stat = os.lstat = stat_file
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    sys.argv = ["checker.py", *names]
"""

log = logging.getLogger(__name__)


class Finding(Enum):
    """What one run of a checker shows."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CRASHED = "crashed"  # without a decision: the output is malformed, or the checker is broken
    FAULT = "fault"  # the checker's own failure
    UNKNOWN = "unknown"  # the sandbox failed


@dataclass(frozen=True, slots=True)
class Decision:
    """A checker's decision on one output."""

    finding: Finding
    reason: str = ""
    at_limit: bool = False  # the checker exceeded a limit
    by_wall_time: bool = False  # of wall time


TOO_LONG = Decision(Finding.REJECTED, "the output is far longer than the expected one")
NO_NUMBER = Decision(Finding.REJECTED, "a NaN or an infinity is no answer")


# ---- one run of a checker ----


def python_program(source: str) -> str:
    """Return the program that runs a Python checker on files in memory."""
    return (
        f"{_PYTHON_FILES_IN_MEMORY}\n_open_files_in_memory({PYTHON_FILES!r})\n"
        f"del _open_files_in_memory\nexec(compile({source!r}, 'checker.py', 'exec'))\n"
    )


def checker_input(language: str, test: Test, output: bytes) -> bytes:
    """Return the three texts in the order of the checker's arguments, behind their sizes."""
    given, expected = as_bytes(test.input), as_bytes(test.output)
    files = (given, expected, output) if language == "python" else (given, output, expected)
    sizes = " ".join(str(len(content)) for content in files)
    return b"".join((sizes.encode(), b"\n", *files))


def decide(language: str, execution: Execution) -> Decision:
    """Return what a checker's run says.

    A Python checker accepts if it ends without an error and the last word that it prints is 1. One
    on testlib says it by its exit status: 0 accepts; 1 (wrong), 2 (format), 4 (more than the
    answer), 8 (less) and 16 to 216 (a share of points) reject. 7 (points) rejects too, because no
    problem here says how many are all. 3 and any other status, an exception, a signal and a limit
    that it exceeds are no decision: whose fault they are, the expected output shows.
    """
    outcome = execution.outcome
    # The end of a message, which may quote a hostile output.
    reason = readable(execution.stderr.strip().rpartition("\n")[2][:_MAX_REASON_CHARS])
    if outcome in (Outcome.INFRA_ERROR, Outcome.STARVED):
        return Decision(Finding.UNKNOWN, reason)
    if outcome is Outcome.FINISHED:
        if language == "testlib" or execution.stdout.split()[-1:] == [b"1"]:
            return Decision(Finding.ACCEPTED)
        return Decision(Finding.REJECTED, "the checker rejects it")
    if outcome is not Outcome.RUNTIME_ERROR:
        finding = Finding.FAULT if outcome is Outcome.SYNTAX_ERROR else Finding.CRASHED
        at_limit = finding is Finding.CRASHED
        return Decision(finding, f"the checker ends with {outcome}", at_limit=at_limit)
    status = execution.exit_code
    if status is None or status < 0:
        return Decision(Finding.CRASHED, f"the checker ends by signal {-(status or 0)}")
    if language == "python":
        return Decision(Finding.CRASHED, f"the checker ends with an error: {reason}")
    if status in (1, 2, 4, 7, 8) or 16 <= status <= 216:
        return Decision(Finding.REJECTED, reason or f"the checker's exit status is {status}")
    return Decision(Finding.CRASHED, f"the checker fails (exit status {status}): {reason}")


def is_no_number(output: bytes, expected: str) -> bool:
    """Return whether an output has a NaN or an infinity where the expected one has numbers.

    Every comparison with a NaN is false. So a checker that rejects a difference of more than 1e-6
    would accept a NaN for any number, and an infinity where it divides by that.
    """
    if not _PERHAPS_NOT_FINITE.search(output):
        return False
    text = output.decode("utf-8", "replace")
    found = [word for word in text.split() if _is_finite(word) is False]
    words = expected.split()
    finite = list(map(_is_finite, words)) if found else []
    if not finite or False in finite:
        return False
    if any(is_number and "." in word for word, is_number in zip(words, finite, strict=True)):
        return True
    # Integers of many digits are no infinities to checkers that read them as integers.
    return None not in finite and not all(word.strip("+-").isdecimal() for word in found)


def _is_finite(word: str) -> bool | None:
    """Return whether the number that a word stands for is finite; None if it is no number."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return None


# ---- a program and its outputs ----


@dataclass(eq=False)
class CheckedProgram:
    """One program: its executions, and its outputs that wait for the checker."""

    number: int
    pending: PendingProgram
    checker: CheckerProgram
    early_stop: bool
    executions: list[Execution] = field(default_factory=list)
    unchecked: dict[int, bytes] = field(default_factory=dict)  # position → output
    failed: bool = False  # no further test is needed
    stopped_at: int | None = None  # position of the first failure, if judging ends there
    # the position where the checker ended without a decision, and how
    crashed: tuple[int, Decision] | None = None

    @property
    def ended(self) -> bool:
        return self.stopped_at is not None or not (self.unchecked or self.next_inputs)

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

    def test(self, position: int) -> Test:
        return self.pending.problem.tests[self.pending.order[position]]

    def take(self, position: int, execution: Execution) -> bool:
        """Grade an execution as far as that needs no checker; return whether to go on."""
        if execution.outcome in NO_VERDICT:
            self.failed = True
            return False
        output, execution.stdout = execution.stdout, b""
        expected = self.test(position).output
        longest = LONGER_TIMES * (len(expected) + len(self.test(position).input))
        # Graded as if the output were right; the checker may still reject it.
        graded = grade("text", "", self.pending.limit_s, execution)
        graded = self.pending.keep(position, graded, execution)
        finished = execution.outcome is Outcome.FINISHED
        if finished and output.strip() != as_bytes(expected).strip():
            if len(output) > max(longest, LONGER_BYTES):
                graded = self._reject(position, TOO_LONG, output)
            elif is_no_number(output, expected):
                graded = self._reject(position, NO_NUMBER, output)
            else:
                self.unchecked[position] = output
        wrong = graded.verdict is not Verdict.ACCEPTED
        self.failed |= bool(graded.ended) or (self.early_stop and wrong)
        return not self.failed and sum(map(len, self.unchecked.values())) < HELD_BYTES

    def decide(self, position: int, decision: Decision) -> bool:
        """Take a decision on an output; return whether the checker should go on."""
        if decision.finding is Finding.CRASHED:
            self.crashed = (position, decision)
            return False
        output = self.unchecked.pop(position)
        if decision.finding is Finding.ACCEPTED:
            return True
        if decision.finding is Finding.REJECTED:
            self._reject(position, decision, output)
            # Each further output could take a checker that exceeded a limit as long again.
            self.stopped_at = position if self.early_stop or decision.at_limit else None
        else:
            infra_error = Grade(Verdict.INFRA_ERROR, decision.reason, doubtful=True)
            self.pending.grades[position] = infra_error
            self.pending.checker_fault = decision.finding is Finding.FAULT
            self.stopped_at = position
        return self.stopped_at is None

    def settle_crash(self, share: float | None) -> None:
        """Decide on the output with which the checker ended without a decision.

        `share`: that of its CPU limit in which it decides on the expected one, infinity if it does
        not; None if the sandbox failed.
        """
        assert self.crashed is not None
        (position, crash), self.crashed = self.crashed, None
        if share is None:
            finding = Finding.UNKNOWN
        else:
            copes = share <= (SLOW_SHARE if crash.at_limit else 1.0)
            finding = Finding.REJECTED if copes else Finding.FAULT
        self.decide(position, replace(crash, finding=finding))

    def close(self) -> float:
        """Drop executions behind the first failure; return their CPU seconds."""
        if self.stopped_at is None:
            return 0.0
        behind = self.executions[self.stopped_at + 1 :]
        del self.executions[self.stopped_at + 1 :]
        return sum(execution.used_s for execution in behind)

    def _reject(self, position: int, decision: Decision, output: bytes) -> Grade:
        """Grade a rejected output; what wall time decided before stays in force."""
        before = self.pending.grades[position]
        self.pending.grades[position] = rejected = replace(
            before,
            verdict=Verdict.WRONG_ANSWER,
            detail=decision.reason,
            doubtful=(before.doubtful and before.by_wall_time) or decision.by_wall_time,
            by_wall_time=before.by_wall_time or decision.by_wall_time,
            output=kept_output(PROGRAM, output),
        )
        return rejected


@dataclass(eq=False)
class CheckerRuns:
    """The checkers of one judge: their programs, and what they decided on malformed outputs."""

    sandbox: Sandbox
    limits: Limits  # of a checker on one output
    stats: JudgeStats  # charged with the CPU time of checkers, and of programs behind a failure
    early_stop: bool
    testlib: str | None
    _programs: dict[CheckerProgram, str] = field(default_factory=dict)
    # those that do not compile; on a full disk, in this call
    _broken: dict[CheckerProgram, Decision] = field(default_factory=dict)
    # (problem, test) → share of its CPU limit in which the checker decides on the expected output;
    # infinity if it does not
    _copes: dict[tuple[str, int], float] = field(default_factory=dict)

    @cached_property
    def toolchain(self) -> Toolchain:
        """The compiler of checkers on testlib. Raises CompilerMissing."""
        toolchain = find_toolchain(self.testlib)
        toolchain.require()
        return toolchain

    def require(self, problem: Problem) -> None:
        """Raise CompilerMissing if the problem's checker needs a compiler that is not here."""
        if problem.checker_program and problem.checker_program.language == "testlib":
            with contextlib.suppress(OSError):  # such as a full disk: `_prepare` tries again
                assert self.toolchain

    def run(self, programs: Mapping[int, PendingProgram]) -> Iterator[tuple[int, list[Execution]]]:
        """Yield (number, executions) as programs are graded; their grades are those of `keep`."""
        runs = []
        for number, pending in programs.items():
            assert pending.problem.checker_program is not None
            pending.checker_fault = False  # of an earlier run
            checker = pending.problem.checker_program
            runs.append(CheckedProgram(number, pending, checker, self.early_stop))
        for first in range(0, len(runs), PROGRAMS_AT_A_TIME):
            left = runs[first : first + PROGRAMS_AT_A_TIME]
            self._prepare(run.checker for run in left)
            while left:
                self._run_programs([run for run in left if run.next_inputs])
                self._run_checkers([run for run in left if run.unchecked])
                for run in left:
                    if run.ended:
                        self.stats.cpu_s += run.close()
                        yield run.number, run.executions
                left = [run for run in left if not run.ended]

    def _prepare(self, checkers: Iterable[CheckerProgram]) -> None:
        """Make the programs of all checkers that are new."""
        found = dict.fromkeys(checkers)
        faults = self._broken.items()
        self._broken = {one: why for one, why in faults if why.finding is Finding.FAULT}
        new = [one for one in found if one not in self._programs and one not in self._broken]
        if len(self._programs) + len(new) > KEPT_CHECKERS:
            self._programs = {one: self._programs[one] for one in found if one in self._programs}
        sources = [checker.source for checker in new if checker.language == "testlib"]
        executables: Mapping[str, bytes | str | OSError]
        try:
            executables = compile_all(self.toolchain, sources) if sources else {}
        except OSError as error:
            executables = dict.fromkeys(sources, error)
        for checker in new:
            if checker.language == "python":
                self._programs[checker] = python_program(checker.source)
            elif isinstance(executable := executables[checker.source], bytes):
                self._programs[checker] = native_program(executable)
            else:
                reason = f"the checker does not compile: {executable}"
                at_fault = isinstance(executable, str)
                finding = Finding.FAULT if at_fault else Finding.UNKNOWN
                self._broken[checker] = Decision(finding, reason)

    def _run_programs(self, runs: list[CheckedProgram]) -> None:
        """Run programs on their next tests."""
        begun = [len(run.executions) for run in runs]
        jobs = [
            replace(run.pending.job, inputs=run.next_inputs, promising=run.promising)
            for run in runs
        ]

        def keep_going(index: int, position: int, execution: Execution) -> bool:
            return runs[index].take(begun[index] + position, execution)

        for index, executions in self.sandbox.run(jobs, keep_going) if jobs else ():
            runs[index].executions += executions
            # Not offered to `keep_going`: a program that does not compile, a worker that was lost.
            runs[index].failed |= executions[-1].outcome in NO_VERDICT

    def _run_checkers(self, runs: list[CheckedProgram]) -> None:
        """Run checkers on the outputs that wait for them, up to one that ends the program's run."""
        jobs, asked = [], []
        for batch in _batches(runs):
            checker = batch[0][0].checker
            if checker not in self._broken:
                inputs = [
                    checker_input(checker.language, run.test(at), run.unchecked[at])
                    for run, at in batch
                ]
                jobs.append(self._job(checker, inputs))
                asked.append(batch)
                continue
            for run, position in batch:
                if not run.ended:
                    run.decide(position, self._broken[checker])

        def keep_going(index: int, number: int, execution: Execution) -> bool:
            run, position = asked[index][number]
            go_on = run.decide(position, self._decide(run, execution))
            return go_on or asked[index][-1][0] is not run

        for index, executions in self.sandbox.run(jobs, keep_going) if jobs else ():
            self.stats.cpu_s += sum(execution.used_s for execution in executions)
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
        keys, new = {}, {}
        for run in runs:
            assert run.crashed is not None
            keys[run] = key = run.pending.problem.hash, run.pending.order[run.crashed[0]]
            if key not in self._copes:
                new[key] = run, run.test(run.crashed[0])
        jobs = [
            self._job(
                run.checker, [checker_input(run.checker.language, test, as_bytes(test.output))]
            )
            for run, test in new.values()
        ]
        tried, now = list(new.items()), dict(self._copes)
        for index, (execution, *_) in self.sandbox.run(jobs, lambda *_: True) if jobs else ():
            key, (run, _) = tried[index]
            self.stats.cpu_s += execution.used_s
            decision = self._decide(run, execution)
            if decision.finding is not Finding.UNKNOWN and not execution.killed:
                decides = decision.finding in (Finding.ACCEPTED, Finding.REJECTED)
                now[key] = execution.cpu_s / self.limits.cpu_s if decides else math.inf
                if not decision.by_wall_time:
                    self._copes[key] = now[key]
        for run in runs:
            run.settle_crash(now.get(keys[run]))

    def _decide(self, run: CheckedProgram, execution: Execution) -> Decision:
        timed_out = execution.outcome is Outcome.TIME_LIMIT
        by_wall_time = timed_out and execution.cpu_s <= self.limits.cpu_s
        decision = decide(run.checker.language, execution)
        if execution.killed and not run.pending.killed:  # as a program, it has a second run
            run.pending.killed = True
            decision = replace(decision, finding=Finding.UNKNOWN)
        return replace(decision, by_wall_time=by_wall_time or execution.killed)

    def _job(self, checker: CheckerProgram, inputs: list[bytes]) -> Job:
        program = self._programs[checker]
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
