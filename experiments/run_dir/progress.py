"""The display of a running run on stderr: bars and the present activity.

On a terminal the activity is a line below the bars that changes as it goes. Elsewhere, e.g. in a
log file, a line comes every LINE_EVERY_S seconds, also within a long step.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from experiments.run_dir.activity import Activity

LINE_EVERY_S = 30.0  # between lines without a terminal
CHECK_EVERY_S = 1.0


class Bars(Progress):
    """Bars, and below them a line that is rendered anew at each refresh."""

    def __init__(self, line: Callable[[], str], console: Console) -> None:
        self._line = line
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            # where the line is too narrow, the bar becomes shorter, and the count stays whole
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self._line(), no_wrap=True, overflow="ellipsis")


class Display:
    """Training and evaluation progress of a run."""

    def __init__(self, steps: int, label: str = "") -> None:
        """`label`: begins each line where other runs write too; there are no bars then."""
        self.label, self.steps, self.activity = label, steps, Activity()
        self.pass_at: dict[int, float] = {}  # k → pass@k of the last evaluation
        self._note = "{score}"  # of the last step
        self._done = 0  # steps
        self._last_line = time.monotonic()
        self._stopped = threading.Event()
        self.console = Console(
            stderr=True, highlight=False, force_terminal=False if label else None
        )
        self.bars = Bars(self.activity.text, self.console)
        self.training = self.bars.add_task("training", total=steps, note="", visible=steps > 0)
        self._thread = threading.Thread(target=self._write_lines, name="display", daemon=True)

    def __enter__(self) -> Display:
        self.bars.start()
        if self.bars.disable:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self.activity.begin("")
        self.bars.stop()

    def say(self, *lines: str) -> None:
        """Print lines."""
        for line in lines:
            self.console.print(f"{self.label}{line}", soft_wrap=True, markup=False)

    def step(self, step: int, row: dict[str, Any], seconds: float) -> None:
        """Show a training step that took `seconds`."""
        rate = row["generated_tokens"] / max(seconds, 1e-9)
        self._note = f"reward {row['reward_mean']:.3f}  {{score}}  {rate:,.0f} tokens/s"
        if math.isnan(row["reward_mean"]):  # a batch of the data set's programs alone
            self._note = f"loss {row['loss']:.3f}  {{score}}"
        self._done = step
        self._update()
        if step == self.steps and self.bars.disable:
            self._write_line()

    def evaluated(
        self, name: str, pass_at: dict[int, float], cache_file: Path | None, main: bool
    ) -> None:
        """Show an evaluation; `cache_file`: the file that it was read from.

        `main`: it is at `eval.temperature`, and its pass@k stands beside the training's progress.
        """
        if main:
            self.pass_at = pass_at
            self._update()
        scores = "  ".join(f"pass@{k} {score:.3f}" for k, score in pass_at.items())
        self.say(f"{name}: {scores}" + f" (cached in {cache_file})" * bool(cache_file))

    def evaluating(self, name: str, total: int) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Add a bar for an evaluation; return how to advance it, and how to remove it."""
        bar = self.bars.add_task(name, total=total, note="")
        return lambda count: self.bars.advance(bar, count), lambda: self.bars.remove_task(bar)

    def _update(self) -> None:
        self.bars.update(self.training, completed=self._done, note=self._full_note())

    def _full_note(self) -> str:
        k, score = next(iter(self.pass_at.items()), (1, float("nan")))
        return self._note.replace("{score}", f"pass@{k} {score:.3f}") if self._done else ""

    def _write_line(self) -> None:
        parts = [f"step {self._done}/{self.steps}", self._full_note(), self.activity.text()]
        self.say("  ".join(filter(None, parts)))
        self._last_line = time.monotonic()

    def _write_lines(self) -> None:
        """Write a line whenever none came for LINE_EVERY_S seconds."""
        while not self._stopped.wait(CHECK_EVERY_S):
            if time.monotonic() - self._last_line >= LINE_EVERY_S:
                self._write_line()
