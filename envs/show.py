"""Print a problem as a person would read it: facts, prompt, tests, and the data set's programs.

    python -m envs.show task=mini|taco|code_contests|apps|paper [task.path=PATH]
                        [task.test_path=PATH] [problem=NAME or a part of it]

Without `problem`, the names of the first problems of every split.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envs.problem import Problem
from envs.tasks import Task, open_task
from envs.tasks.config import TaskConfig

KEYS = ("task", "task.path", "task.test_path", "problem")
_LISTED = 20  # names of a split, and tests of a problem
_SHOWN_CHARS = 400  # of one input or output
_ALL = 10**9


def main(argv: Sequence[str] | None = None) -> int:
    """0: shown; 2: there is no such thing, said in one line."""
    console = Console(highlight=False)
    try:
        given = _parse(sys.argv[1:] if argv is None else argv)
        # mini draws as many problems as it is asked for; a data set gives all that it has
        sizes = {} if given.get("task", "mini") == "mini" else {"train_problems": _ALL}
        if sizes:
            sizes |= {"validation_problems": _ALL, "test_problems": _ALL}
        task = open_task(
            TaskConfig(
                name=given.get("task", "mini"),
                path=given.get("task.path"),
                test_path=given.get("task.test_path"),
                decontaminate=False,  # what is shown may stand twice
                **sizes,
            )
        )
        if "problem" in given:
            show(_find(task, given["problem"]), task, console)
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


def _parse(argv: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for argument in argv:
        key, equals, value = argument.partition("=")
        if not equals or key not in KEYS or not value:
            raise ValueError(f"{argument!r}: write key=value, with a key of {', '.join(KEYS)}")
        given[key] = value
    return given


def _find(task: Task, wanted: str) -> Problem:
    problems = [*task.train, *task.validation, *task.test]
    found = [p for p in problems if p.name == wanted] or [p for p in problems if wanted in p.name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(problem.name for problem in (found or problems)[:5])
    count = f"{len(found)} problems match" if found else "no problem matches"
    raise ValueError(f"problem={wanted}: {count}; for example {names}")


def _list(task: Task, console: Console) -> None:
    for split in ("train", "validation", "test"):
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
