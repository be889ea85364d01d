"""Print a problem: facts, prompt, tests, and a right program of the data set.

    python -m envs.show task=NAME [task.KEY=VALUE ...] [problem=NAME or a part of it]

Takes run.py's task arguments. Without `problem`, lists the first problems of every split.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envs.command_line import quiet_when_unread
from envs.problem import Problem
from envs.readable import MAX_ERROR_CHARS, readable
from envs.tasks import open_task
from envs.tasks.config import TaskConfig
from envs.tasks.selection import StoredProblems
from envs.tasks.task import SPLITS, Task
from envs.tasks.task_cli import parse_task_arguments

_MAX_SUGGESTED = 5
_MAX_LISTED = 20  # names of a split, and tests of a problem
_MAX_CHARS = 400  # of one input or output
_MAX_TEXT_CHARS = 20_000  # of a prompt, and of a program
_ALL = 10**9


@dataclass
class Options:
    """The command's own options."""

    problem: str | None = None  # its name or a part of it


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 2 after a one-line error."""
    console = Console(highlight=False)
    try:
        config, options = parse_task_arguments(Options, sys.argv[1:] if argv is None else argv)
        if options.problem:
            show(*find_problem(config, options.problem), console)
        else:
            generated = config.make is not None
            _list(open_whole(config), console, config.decontaminate and not generated)
    except (ValueError, OSError) as error:
        print(f"show: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    return 0


def show(problem: Problem, task: Task, console: Console) -> None:
    """Print one problem."""
    facts = {
        "problem": problem.name,
        "checker": _checker(problem),
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
    for program in problem.solutions[:1]:
        console.print(Panel(_text(program.strip()), title="a right program"))


def _checker(problem: Problem) -> str:
    program = problem.checker_program
    return problem.checker + (f" (a program: {program.language})" if program else "")


def _limit(value: float | None, unit: str) -> str:
    return "the judge's default" if value is None else f"{value:g} {unit}"


def find_problem(config: TaskConfig, part: str, split: str | None = None) -> tuple[Problem, Task]:
    """Return the problem with a name, or with a part of it that no other has, and its task.

    Raises ValueError with near names if there is none. Problems that are not trained on count too.
    """
    task = open_whole(replace(config, min_hidden_tests=0))
    places = {
        name: (problems, index)
        for each, problems in task.splits().items()
        if split in (None, each)
        for index, name in enumerate(_names(problems))
    }
    matches = [part] if part in places else [name for name in places if part in name]
    if len(matches) == 1:
        problems, index = places[matches[0]]
        return problems[index], task
    where = f" of split={split}" if split else ""
    if matches:
        count, near = f"{len(matches)} problems{where} match; for example", matches
    else:
        count = f"no problem{where} matches; for example"
        if near := difflib.get_close_matches(part, places, n=_MAX_SUGGESTED):
            count = f"no problem{where} matches; did you mean"
    names = ", ".join((near or list(places))[:_MAX_SUGGESTED])
    raise ValueError(f"problem={part}: {count} {names}" + "?" * count.endswith("mean"))


def open_whole(config: TaskConfig) -> Task:
    """Open a task with all problems, near-duplicates of other splits' included."""
    # MiniContests generates any number of problems; others have so many
    if not (config.make or "").startswith("envs.tasks.mini."):
        sizes: dict[str, Any] = {f"{split}_problems": _ALL for split in SPLITS}
        config = replace(config, **sizes)
    return open_task(replace(config, decontaminate=False))


def _names(problems: Sequence[Problem]) -> list[str]:
    if isinstance(problems, StoredProblems):
        return [entry.name for entry in problems.entries]
    return [problem.name for problem in problems]


def _list(task: Task, console: Console, near_duplicates: bool) -> None:
    """List problems; `near_duplicates`: those that a run would leave out may be among them."""
    for split, problems in task.splits().items():
        console.print(f"{split}: {len(problems)} problems")
        for problem in problems[:_MAX_LISTED]:
            first = " ".join(problem.statement.split())[:70]
            console.print(_text(f"  {problem.name}  {first}", _MAX_CHARS), soft_wrap=True)
    for reason, count in task.left_out.most_common():
        row = task.first_left_out.get(reason)
        text = _text(f"left out, {reason}: {count}" + f" (first: {row})" * bool(row))
        console.print(text, soft_wrap=True)
    if near_duplicates:
        console.print(
            "near-duplicates of other splits' problems are listed, but left out of runs "
            "(task.decontaminate); python -m envs.prepare names them",
            soft_wrap=True,
        )


def _text(text: str, most: int = _MAX_TEXT_CHARS) -> Text:
    return Text(readable(text, most))


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
