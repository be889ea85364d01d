"""Print a problem as a person would read it: facts, prompt, tests, and the data set's programs.

    python -m envs.show task=NAME [task.KEY=VALUE ...] [problem=NAME or a part of it]

Takes the same task arguments as run.py. Without `problem`, names of the first problems of every
split.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envs.problem import Problem
from envs.tasks import open_task
from envs.tasks.selection import StoredProblems
from envs.tasks.task import SPLITS, Task
from envs.tasks.task_cli import parse_task_arguments

_LISTED = 20  # names of a split, and tests of a problem
_SHOWN_CHARS = 400  # of one input or output
_ALL = 10**9


@dataclass
class Options:
    """What the command line asks for besides the task."""

    problem: str | None = None  # its name or a part of it


def main(argv: Sequence[str] | None = None) -> int:
    """0: shown; 2: there is no such thing, said in one line."""
    console = Console(highlight=False)
    try:
        config, options = parse_task_arguments(Options, sys.argv[1:] if argv is None else argv)
        if config.name != "mini":  # mini makes as many as it is asked for; others have so many
            config = replace(config, **{f"{split}_problems": _ALL for split in SPLITS})
        task = open_task(replace(config, decontaminate=False))  # what is shown may stand twice
        if options.problem:
            show(_find(task, options.problem), task, console)
        else:
            _list(task, console)
    except (ValueError, OSError) as error:
        print(f"show: {error}", file=sys.stderr)
        return 2
    return 0


def show(problem: Problem, task: Task, console: Console) -> None:
    """All of one problem."""
    limits = f"{problem.time_limit_s or '–'} s, {problem.memory_limit_mb or '–'} MiB"
    facts = {
        "problem": problem.name,
        "checker": problem.checker,
        "limits": limits,
        "difficulty": problem.difficulty,
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
    for number, test in enumerate(problem.tests[:_LISTED]):
        name = f"{number} sample" if test in problem.samples else str(number)
        table.add_row(name, Text(_shorten(test.input)), Text(_shorten(test.output)))
    console.print(table)
    for program in problem.solutions[:1]:
        console.print(Panel(Text(program.strip()), title="a right program"))


def _find(task: Task, wanted: str) -> Problem:
    places = {name: (split, i) for split in SPLITS for i, name in enumerate(_names(task, split))}
    found = [wanted] if wanted in places else [name for name in places if wanted in name]
    if len(found) == 1:
        split, i = places[found[0]]
        return getattr(task, split)[i]
    names = ", ".join((found or list(places))[:5])
    count = f"{len(found)} problems match" if found else "no problem matches"
    raise ValueError(f"problem={wanted}: {count}; for example {names}")


def _names(task: Task, split: str) -> list[str]:
    problems = getattr(task, split)
    if isinstance(problems, StoredProblems):
        return [entry.name for entry in problems.entries]
    return [problem.name for problem in problems]


def _list(task: Task, console: Console) -> None:
    for split in SPLITS:
        problems = getattr(task, split)
        console.print(f"{split}: {len(problems)} problems")
        for problem in problems[:_LISTED]:
            first = " ".join(problem.statement.split())[:70]
            console.print(Text(f"  {problem.name}  {first}"), soft_wrap=True)
    for reason, count in task.left_out.most_common():
        console.print(Text(f"left out, {reason}: {count}"))


def _shorten(text: str) -> str:
    text = text.rstrip("\n")
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


if __name__ == "__main__":
    sys.exit(main())
