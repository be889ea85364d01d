"""Count the public tests of a task's problems, and run the data set's own programs on them.

    python -m envs.validation.public_tests task=NAME [task.path=PATH] [task.KEY=VALUE ...]
                                           [programs=N] [sandbox=auto|docker|embedded]
                                           [judge.KEY=VALUE ...]

Takes run.py's task arguments and reads all splits whole. A problem's first right program should
pass its public tests; those that fail are named. A first wrong program shows how long an
observation is (task.feedback, task.feedback_prompt). The programs of the first N problems that have
one are judged, N right and N wrong ones; programs=0 only counts.

The exit status is 0, 1 if the judge failed on a program, and 2 after a one-line error.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import NonNegativeInt
from rich.console import Console
from rich.text import Text

from envs.command_line import quiet_when_unread
from envs.environment import Submission
from envs.feedback import Feedback
from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig
from envs.problem import Judgement, Problem, Verdict
from envs.readable import MAX_ERROR_CHARS, readable
from envs.sandbox.base import SandboxError
from envs.sandbox.select import SandboxConfig, open_sandbox
from envs.show import open_whole
from envs.tasks.config import TaskConfig
from envs.validation.judge_arguments import SandboxKind, parse_judge_arguments

_MAX_LISTED = 20  # right programs that fail


@dataclass
class Options:
    """The command's own options."""

    programs: NonNegativeInt = 60  # problems whose first right (wrong) program is judged
    sandbox: SandboxKind = "auto"  # auto: docker if it is there


@dataclass
class Counts:
    """A task's public tests, and the programs to be judged by them."""

    problems: int = 0
    with_samples: int = 0
    public_tests: list[int] = field(default_factory=list)  # of each problem that has some
    right: list[tuple[Problem, str]] = field(default_factory=list)  # first programs
    wrong: list[tuple[Problem, str]] = field(default_factory=list)

    def line(self) -> str:
        """Say the counts of problems and tests."""
        each = f" ({statistics.fmean(self.public_tests):.1f} each)" if self.public_tests else ""
        return (
            f"{self.problems} problems, {self.with_samples} with samples, "
            f"{len(self.public_tests)} with public tests{each}"
        )


def count(config: TaskConfig, feedback: Feedback, programs: int) -> Counts:
    """Count the public tests of all problems; keep at most `programs` right and wrong programs.

    Raises ValueError and OSError like `open_task`.
    """
    counts = Counts()
    task = open_whole(replace(config, min_hidden_tests=0))
    for problem in (each for problems in task.splits().values() for each in problems):
        counts.problems += 1
        counts.with_samples += bool(problem.samples)
        if (public := feedback.public(problem)) is None:
            continue
        counts.public_tests.append(len(public.tests))
        for kept, own in (
            (counts.right, problem.solutions),
            (counts.wrong, problem.incorrect_solutions),
        ):
            if own and len(kept) < programs:
                kept.append((problem, own[0]))
    return counts


def run(task: TaskConfig, options: Options, config: JudgeConfig, console: Console) -> bool:
    """Count, judge and print; return whether every program has a verdict.

    Raises OSError, ValueError and SandboxError.
    """
    template = Path(task.feedback_prompt) if task.feedback_prompt else None
    feedback = Feedback(task.feedback, template)
    counts = count(task, feedback, options.programs)
    console.print(counts.line())
    if not (counts.right or counts.wrong):
        return True
    with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
        judge = Judge(sandbox, config)
        right, wrong = (_judged(feedback, judge, own) for own in (counts.right, counts.wrong))
    failing = [problem for problem, found in right if found.verdict is not Verdict.ACCEPTED]
    passing = f"{len(right) - len(failing)} of {len(right)}"
    console.print(f"first right programs that pass them: {passing}")
    for problem in failing[:_MAX_LISTED]:
        console.print(Text(readable(f"  {problem.name}")), soft_wrap=True)
    lengths = [
        len(feedback.observation(problem, found))
        for problem, found in wrong
        if found.verdict not in (Verdict.ACCEPTED, Verdict.INFRA_ERROR)
    ]
    console.print(_observations(len(wrong), lengths), soft_wrap=True)
    return not any(found.verdict is Verdict.INFRA_ERROR for _, found in (*right, *wrong))


def _judged(
    feedback: Feedback, judge: Judge, programs: Sequence[tuple[Problem, str]]
) -> list[tuple[Problem, Judgement]]:
    """Return each program's problem and its judgement by the public tests."""
    public = [(feedback.public(problem), program) for problem, program in programs]
    submissions = [Submission(p, as_response(program)) for p, program in public if p is not None]
    problems = [problem for problem, _ in programs]
    return list(zip(problems, judge.judge(submissions), strict=True))


def _observations(programs: int, lengths: Sequence[int]) -> str:
    text = f"first wrong programs that fail them: {len(lengths)} of {programs}"
    if not lengths:
        return text
    mean, most = statistics.fmean(lengths), max(lengths)
    return f"{text}; their observations have {mean:.0f} characters on average, at most {most}"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    console = Console(highlight=False)
    try:
        arguments = parse_judge_arguments(Options, sys.argv[1:] if argv is None else argv)
        return 0 if run(*arguments, console) else 1
    except (OSError, ValueError, SandboxError) as error:
        print(f"public_tests: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
