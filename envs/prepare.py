"""Convert a data set ahead of a run, so that the run starts at once.

    python -m envs.prepare task=taco|code_contests|apps|paper [task.KEY=VALUE ...]

Takes the same arguments as run.py. What an interrupted call has converted stays; the next goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from envs.cache_folder import root
from envs.tasks import open_task
from envs.tasks.task import SPLITS, Task
from envs.tasks.task_cli import task_config


def main(argv: Sequence[str] | None = None) -> int:
    """0: prepared; 2: it cannot be, said in one line; 130: interrupted."""
    console = Console(highlight=False)
    started = time.monotonic()
    try:
        task = open_task(task_config(sys.argv[1:] if argv is None else argv))
    except (ValueError, OSError) as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prepare: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    show(task, console)
    console.print(f"{time.monotonic() - started:.1f} s; kept in {root()}", soft_wrap=True)
    return 0


def show(task: Task, console: Console) -> None:
    """Where every row went."""
    table = Table("rows", "number", title=f"{task.rows_read} rows read")
    for split in SPLITS:
        table.add_row(split, str(len(getattr(task, split))))
    for reason, count in task.left_out.most_common():
        table.add_row(f"left out: {reason}", str(count))
    console.print(table)
    for pair in task.decontaminated[:20]:
        line = "stands in test too: {train} = {test} (similarity {similarity})".format_map(pair)
        console.print(line, markup=False, soft_wrap=True)
    if len(task.decontaminated) > 20:
        console.print(f"… and {len(task.decontaminated) - 20} more pairs")


if __name__ == "__main__":
    sys.exit(main())
