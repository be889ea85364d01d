"""Print a problem: facts, prompt, tests, and a right program of the data set.

    python -m envs.show task=NAME [task.KEY=VALUE ...] [problem=NAME or a part of it]

Takes run.py's task arguments. Without `problem`, lists the first problems of every split.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envs.problem import Problem
from envs.tasks import open_task
from envs.tasks.selection import StoredProblems
from envs.tasks.task import SPLITS, Task
from envs.tasks.task_cli import parse_task_arguments

_MAX_LISTED = 20  # names of a split, and tests of a problem
_MAX_CHARS = 400  # of one input or output
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
        # MiniContests generates any number of problems; others have so many
        if not (config.make or "").startswith("envs.tasks.mini."):
            sizes: dict[str, Any] = {f"{split}_problems": _ALL for split in SPLITS}
            config = replace(config, **sizes)
        task = open_task(replace(config, decontaminate=False))
        if options.problem:
            show(_find(task, options.problem), task, console)
        else:
            _list(task, console)
    except (ValueError, OSError) as error:
        print(f"show: {error}", file=sys.stderr)
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
            console.print(Text(f"{name:>12}  {value}"), soft_wrap=True)
    console.print(Panel(Text(task.prompt(problem)), title="prompt"))
    table = Table("test", "input", "expected output", title=f"{len(problem.tests)} tests")
    for number, test in enumerate(problem.tests[:_MAX_LISTED]):
        name = f"{number} sample" if test in problem.samples else str(number)
        table.add_row(name, Text(_shorten(test.input)), Text(_shorten(test.output)))
    console.print(table)
    for program in problem.solutions[:1]:
        console.print(Panel(Text(program.strip()), title="a right program"))


def _checker(problem: Problem) -> str:
    program = problem.checker_program
    return problem.checker + (f" (a program: {program.language})" if program else "")


def _limit(value: float | None, unit: str) -> str:
    return "the judge's default" if value is None else f"{value:g} {unit}"


def _find(task: Task, part: str) -> Problem:
    places = {
        name: (problems, index)
        for problems in task.splits().values()
        for index, name in enumerate(_names(problems))
    }
    matches = [part] if part in places else [name for name in places if part in name]
    if len(matches) == 1:
        problems, index = places[matches[0]]
        return problems[index]
    names = ", ".join((matches or list(places))[:5])
    count = f"{len(matches)} problems match" if matches else "no problem matches"
    raise ValueError(f"problem={part}: {count}; for example {names}")


def _names(problems: Sequence[Problem]) -> list[str]:
    if isinstance(problems, StoredProblems):
        return [entry.name for entry in problems.entries]
    return [problem.name for problem in problems]


def _list(task: Task, console: Console) -> None:
    for split, problems in task.splits().items():
        console.print(f"{split}: {len(problems)} problems")
        for problem in problems[:_MAX_LISTED]:
            first = " ".join(problem.statement.split())[:70]
            console.print(Text(f"  {problem.name}  {first}"), soft_wrap=True)
    for reason, count in task.left_out.most_common():
        console.print(Text(f"left out, {reason}: {count}"))


def _shorten(text: str) -> str:
    text = text.rstrip("\n")
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}… ({len(text)} characters)"


if __name__ == "__main__":
    sys.exit(main())
