"""Convert a data set ahead of a run, so that the run starts at once.

    python -m envs.prepare task=NAME [task.KEY=VALUE ...]     a data set of conf/task/

Takes run.py's task arguments. After an interruption the same command resumes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envs.cache_folder import cache_root
from envs.command_line import quiet_when_unread, wants_help
from envs.problem import Problem
from envs.readable import MAX_ERROR_CHARS, readable
from envs.tasks import open_task
from envs.tasks.first_rows import first_row_hints
from envs.tasks.selection import StoredProblems, checker_languages, strengths
from envs.tasks.task import Task
from envs.tasks.task_cli import print_task_help, task_config
from envs.validation.problem_quality import cheap_earnings, earnings_line


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, 2 after a one-line error, or 130 if interrupted."""
    console = Console(highlight=False)
    started = time.monotonic()
    arguments = sys.argv[1:] if argv is None else argv
    if wants_help(arguments):
        print_task_help(None, arguments, doc=__doc__)
        return 0
    try:
        config = task_config(arguments)
        task = open_task(config)
        hints = first_row_hints(config)
    except (ValueError, OSError) as error:
        print(f"prepare: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prepare: interrupted; the same command resumes from here", file=sys.stderr)
        return 130
    show(task, console)
    empty = [split for split, problems in task.splits().items() if not len(problems)]
    if empty and not config.evaluation_only:
        hints.insert(
            0,
            f"no problem is in {', '.join(empty)}; a run needs train, unless steps=0, and the "
            "split of eval.split, which is choose by default",
        )
    for hint in hints:
        console.print(f"NOTE: {readable(hint)}", markup=False, soft_wrap=True)
    if config.environment is None and (
        line := earnings_line(cheap_earnings(strengths(task.train)))
    ):
        console.print(line, soft_wrap=True)
    if config.license:
        console.print(f"licence: {config.license}", markup=False, soft_wrap=True)
    if config.evaluation_only:
        console.print(f"for evaluation only: {config.evaluation_only}", soft_wrap=True)
    console.print(f"{time.monotonic() - started:.1f} s; kept in {cache_root()}", soft_wrap=True)
    return 0


def show(task: Task, console: Console) -> None:
    """Print the problems and tests of each split, and why other rows gave no problem."""
    table = Table("rows", "number", "tests", "MB", title=f"{task.rows_read} rows read")
    for split, problems in task.splits().items():
        table.add_row(split, str(len(problems)), *_test_sizes(problems))
    programs = Counter(
        language for problems in task.splits().values() for language in checker_languages(problems)
    )
    for language, count in sorted(programs.items()):
        table.add_row(f"with a checker program ({language})", str(count))
    for reason, count in task.left_out.most_common():
        table.add_row(Text(f"left out: {readable(reason, MAX_ERROR_CHARS)}"), str(count))
    console.print(table)
    for reason, place in task.first_left_out.items():
        if reason in task.left_out:
            line = readable(f"left out, {reason}: first in {place}", MAX_ERROR_CHARS)
            console.print(line, markup=False, soft_wrap=True)
    for pair in task.decontaminated[:20]:
        line = (
            "{problem} of {split} left out: {other_problem} of {other_split} has nearly the same "
            "statement (similarity {similarity}, containment {containment})".format_map(pair)
        )
        console.print(readable(line), markup=False, soft_wrap=True)
    if len(task.decontaminated) > 20:
        console.print(f"… and {len(task.decontaminated) - 20} more pairs")
    if task.decontaminated:
        console.print("task.decontaminate=false keeps them", soft_wrap=True)


def _test_sizes(problems: Sequence[Problem]) -> tuple[str, str]:
    """Return the number and the size of a split's tests, if they are stored."""
    if not isinstance(problems, StoredProblems):
        return "", ""
    count, size = problems.count_tests()
    return str(count), f"{size / 1e6:.1f}"


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
