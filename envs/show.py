"""Print a problem: facts, prompt, tests, a right program; or judge one program on it.

    python -m envs.show task=NAME [task.KEY=VALUE ...] [problem=NAME or a part of it]
    python -m envs.show task=NAME problem=NAME FILE [sandbox=auto|docker|embedded]
                        [judge.KEY=VALUE ...] [feedback=true]

Takes run.py's task arguments. Without `problem`, lists the first problems of every split. FILE is a
program (.py) or a response with a code block (any other name; - for standard input). It is judged
as in a run, and on each test alone.

feedback=true judges it by the tests that the statement shows, and prints the observation that a
model would read (task.feedback, task.feedback_prompt).

With FILE the exit status is 0 for an accepted program, 1 for any other, and 2 for a mistake. Of a
list it is 1 if no problem can be used.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envs.command_line import quiet_when_unread
from envs.judge.extract import MAX_RESPONSE_CHARS, as_response
from envs.judge.judge import Judge, JudgeConfig
from envs.messages import MAX_ERROR_CHARS, readable
from envs.problem import Problem, Submission, Verdict
from envs.sandbox import SandboxConfig, SandboxKind, open_sandbox
from envs.sandbox.base import SandboxError
from envs.tasks import open_task
from envs.tasks.prompts import Feedback
from envs.tasks.stored import problem_names
from envs.tasks.strength import shown_tests
from envs.tasks.task import SPLITS, Task, TaskConfig
from envs.validate import parse_judge_arguments

_MAX_SUGGESTED = 5
_MAX_LISTED = 20  # names of a split, and tests of a problem
_MAX_CHARS = 400  # of one input or output
_MAX_TEXT_CHARS = 20_000  # of a prompt, and of a program
_ALL = 10**9


@dataclass
class Options:
    """The command's own options."""

    problem: str | None = None  # its name or a part of it
    file: str | None = None  # a program (.py) or a response to judge; `file=` may be left out
    sandbox: SandboxKind = "auto"  # auto: docker if it is there
    feedback: bool = False  # print what a model would read of the statement's tests


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status; a mistake is one line."""
    console = Console(highlight=False)
    try:
        words = sys.argv[1:] if argv is None else argv
        bare = [word for word in words if word == "-" or not (word[:1] == "-" or "=" in word)]
        named = [f"file={word}" if word in bare and word != "help" else word for word in words]
        config, options, judge = parse_judge_arguments(Options, named)
        if options.problem is None:
            if options.file:
                raise ValueError("problem=... is missing: the one that the program is judged on")
            return _list(config, console)
        problem, task = find_problem(config, options.problem)
        if options.file:
            return judge_program(config, options, judge, problem, console)
        show(problem, task, console)
    except (ValueError, OSError, SandboxError) as error:
        print(f"show: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    return 0


def show(problem: Problem, task: Task, console: Console) -> None:
    """Print one problem."""
    program = problem.checker_program
    facts = {
        "problem": problem.name,
        "checker": problem.checker + (f" (a program: {program.language})" if program else ""),
        "time limit": _limit(problem.time_limit_s, "s"),
        "memory": _limit(problem.memory_limit_mb, "MiB"),
        "difficulty": problem.difficulty,
        "rating": str(problem.rating or ""),
        "contest": problem.date,
        "tags": ", ".join(problem.tags),
        "source": problem.source,
        "programs": f"{len(problem.solutions)} right, {len(problem.incorrect_solutions)} wrong",
        "hash": problem.hash,
    }
    for name, value in facts.items():
        if value:
            console.print(_text(f"{name:>12}  {value}", _MAX_CHARS), soft_wrap=True)
    console.print(Panel(_text(task.prompt(problem)), title="prompt"))
    table = Table("test", "input", "expected output", title=f"{len(problem.tests)} tests")
    for number, test in enumerate(problem.tests[:_MAX_LISTED]):
        name = f"{number} sample" if test in problem.samples else str(number)
        texts = (_text(text.rstrip("\n"), _MAX_CHARS) for text in (test.input, test.output))
        table.add_row(name, *texts)
    console.print(table)
    for solution in problem.solutions[:1]:
        console.print(Panel(_text(solution.strip()), title="a right program"))


def judge_program(
    task: TaskConfig, options: Options, config: JudgeConfig, problem: Problem, console: Console
) -> int:
    """Judge a program and print what became of it; return the exit status.

    Raises ValueError for a problem that cannot be judged, OSError and SandboxError.
    """
    assert options.file is not None
    if task.environment is not None:
        raise ValueError(f"task.environment={task.environment}: its responses are no programs")
    if options.file == "-":
        response = sys.stdin.read(MAX_RESPONSE_CHARS + 1)
    else:
        response = Path(options.file).read_text(encoding="utf-8")[: MAX_RESPONSE_CHARS + 1]
    if options.file.endswith(".py"):
        response = as_response(response)
    with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
        judge = Judge(sandbox, config)
        if options.feedback:
            return _show_feedback(task, problem, response, judge, console)
        # each test alone, since a judgement has the output of its first failed test only
        parts = [replace(problem, tests=(test,), generated_tests=0) for test in problem.tests]
        problems = [problem, *parts]
        whole, *each = judge.judge([Submission(one, response) for one in problems])
    passed = sum(one.verdict is Verdict.ACCEPTED for one in each)
    console.print(f"[bold]{whole.verdict}[/bold]  {passed} of {len(each)} tests passed")
    if not whole.program or whole.verdict is Verdict.SYNTAX_ERROR:
        console.print(_text(whole.detail, _MAX_TEXT_CHARS))
        return 1
    shown = shown_tests(problem)
    table = Table("test", "verdict", "CPU s", "in text", "input", "expected", "got")
    for number, (test, one) in enumerate(zip(problem.tests, each, strict=True)):
        in_text = "yes" if test in shown else "no"
        got = test.output if one.verdict is Verdict.ACCEPTED else one.output or one.detail
        texts = (_text(text.strip("\n"), _MAX_CHARS) for text in (test.input, test.output, got))
        table.add_row(str(number), one.verdict, f"{one.cpu_s:.3f}", in_text, *texts)
    console.print(table)
    return 0 if whole.verdict is Verdict.ACCEPTED else 1


def _show_feedback(
    task: TaskConfig, problem: Problem, response: str, judge: Judge, console: Console
) -> int:
    """Print the observation on a response; return the exit status."""
    if task.feedback == "foreign":
        raise ValueError(
            "task.feedback=foreign with feedback=true: it shows what is said of another problem's "
            "program, and here is one program; leave task.feedback out"
        )
    template = Path(task.feedback_prompt) if task.feedback_prompt else None
    feedback = Feedback(task.feedback, template)
    public = feedback.public(problem)
    if public is None:
        raise ValueError(f"feedback=true: the statement of {problem.name} shows none of its tests")
    (judgement,) = judge.judge([Submission(public, response)])
    if judgement.verdict is Verdict.ACCEPTED:
        console.print(f"passes all tests that the statement shows: {len(public.tests)}")
        return 0
    if judgement.verdict is Verdict.INFRA_ERROR:
        raise ValueError(f"the judge failed: {judgement.detail}")
    print(readable(feedback.observation(problem, judgement)))  # as it is: no line is wrapped
    return 1


def find_problem(config: TaskConfig, part: str) -> tuple[Problem, Task]:
    """Return the problem with a name, or with a part of it that no other has, and its task.

    Raises ValueError with near names if there is none. Problems that are not trained on count too.
    """
    task = _open_whole(replace(config, min_hidden_tests=0))
    places = {
        name: (problems, index)
        for problems in task.splits().values()
        for index, name in enumerate(problem_names(problems))
    }
    matches = [part] if part in places else [name for name in places if part in name]
    if len(matches) == 1:
        problems, index = places[matches[0]]
        return problems[index], task
    count = f"{len(matches)} problems match" if matches else "no problem matches"
    near = matches or difflib.get_close_matches(part, places, n=_MAX_SUGGESTED) or list(places)
    raise ValueError(f"problem={part}: {count}; for example {', '.join(near[:_MAX_SUGGESTED])}")


def _open_whole(config: TaskConfig) -> Task:
    """Open a task with all problems, near-duplicates of other splits' included."""
    # MiniContests generates any number of problems; others have so many
    if not (config.make or "").startswith("envs.tasks.mini."):
        sizes: dict[str, Any] = {f"{split}_problems": _ALL for split in SPLITS}
        config = replace(config, **sizes)
    return open_task(replace(config, decontaminate=False))


def _list(config: TaskConfig, console: Console) -> int:
    """List the first problems of each split, and why others were left out; return the status."""
    task = _open_whole(config)
    for split, problems in task.splits().items():
        console.print(f"{split}: {len(problems)} problems")
        for problem in problems[:_MAX_LISTED]:
            first = " ".join(problem.statement.split())[:70]
            console.print(_text(f"  {problem.name}  {first}", _MAX_CHARS), soft_wrap=True)
    for reason, count in task.left_out.most_common():
        row = task.first_left_out.get(reason)
        text = _text(f"left out, {reason}: {count}" + f" (first: {row})" * bool(row))
        console.print(text, soft_wrap=True)
    for reason, count in task.changed.items():
        console.print(f"{reason}: {count}", soft_wrap=True)
    if any(task.splits().values()):
        return 0
    console.print("no problem can be used")
    return 1


def _limit(value: float | None, unit: str) -> str:
    return "the judge's default" if value is None else f"{value:g} {unit}"


def _text(text: str, most: int = _MAX_TEXT_CHARS) -> Text:
    return Text(readable(text, most))


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
