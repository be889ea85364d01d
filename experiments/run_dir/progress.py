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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from experiments.run_dir.activity import Activity, duration

LINE_EVERY_S = 30.0  # between lines without a terminal
CHECK_EVERY_S = 1.0
RATE_STEPS = 20  # last steps from which the time left is estimated


class Bars(Progress):
    """Bars, and below them a line that is rendered anew at each refresh."""

    def __init__(self, line: Callable[[], str], console: Console, enabled: bool) -> None:
        self._line = line
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            # where the line is too narrow, the bar becomes shorter, and the count stays whole
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not enabled,
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
        self._note = ""  # of the last step
        self._seconds: list[float] = []  # of the last steps
        self._done = 0  # steps
        self._last_line = time.monotonic()
        self._stopped = threading.Event()
        self.console = Console(
            stderr=True, highlight=False, force_terminal=False if label else None
        )
        self.bars = Bars(self._line, self.console, self.console.is_terminal)
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

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(f"{self.label}{text}", soft_wrap=True, markup=False)

    def say_all(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self.say(line)

    def step(self, step: int, row: dict[str, Any], seconds: float) -> None:
        """Show a training step that took `seconds`."""
        rate = row["generated_tokens"] / max(seconds, 1e-9)
        learnt = f"reward {row['reward_mean']:.3f}  {{score}}  {rate:,.0f} tokens/s"
        # a batch of the data set's programs alone has no reward of the policy
        supervised = math.isnan(row["reward_mean"])
        self._note = f"loss {row['loss']:.3f}  {{score}}" if supervised else learnt
        self._seconds = [*self._seconds, seconds][-RATE_STEPS:]
        self._done = step
        self._update()
        if step == self.steps and self.bars.disable:
            self._write_line(self._step_line())

    def evaluated(
        self,
        step: int,
        pass_at: dict[int, float],
        cache_file: Path | None,
        temperature: float | None = None,
    ) -> None:
        """Show an evaluation; `cache_file`: the file that it was read from.

        `temperature`: a further one, whose pass@k is shown only here; None: the main evaluation.
        """
        if temperature is None:
            self.pass_at = pass_at
            self._update()
        scores = "  ".join(f"pass@{k} {score:.3f}" for k, score in pass_at.items())
        source = f" (cached in {cache_file})" if cache_file else ""
        self.say(f"{_evaluation(step, temperature)}: {scores}{source}")

    def evaluating(
        self, step: int, total: int, temperature: float | None = None
    ) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Add a bar for an evaluation; return how to advance it, and how to remove it."""
        label = _evaluation(step, None)
        if temperature is not None:
            label = f"evaluation at T={temperature:g}"  # short, for 80 columns
        bar: TaskID = self.bars.add_task(label, total=total, note="")
        return lambda count: self.bars.advance(bar, count), lambda: self.bars.remove_task(bar)

    def _update(self) -> None:
        self.bars.update(self.training, completed=self._done, note=self._full_note())

    def _full_note(self) -> str:
        k, score = next(iter(self.pass_at.items()), (1, float("nan")))
        return self._note.replace("{score}", f"pass@{k} {score:.3f}")

    def _left(self) -> str:
        """The time that the remaining steps will take; evaluations are not counted."""
        remaining = self.steps - self._done
        if not self._seconds or not remaining:
            return ""
        mean = sum(self._seconds) / len(self._seconds)
        return f"{duration(mean * remaining)} left"

    def _line(self) -> str:
        """The activity and the time left."""
        return " · ".join(part for part in (self.activity.text(), self._left()) if part)

    def _step_line(self) -> str:
        parts = [f"step {self._done}/{self.steps}", self._full_note(), self._line()]
        return "  ".join(part for part in parts if part)

    def _write_line(self, text: str) -> None:
        self.say(text)
        self._last_line = time.monotonic()

    def _write_lines(self) -> None:
        """Write a line whenever none came for LINE_EVERY_S seconds."""
        while not self._stopped.wait(CHECK_EVERY_S):
            if time.monotonic() - self._last_line >= LINE_EVERY_S:
                self._write_line(self._step_line())


def _evaluation(step: int, temperature: float | None) -> str:
    further = "" if temperature is None else f", temperature {temperature:g}"
    return f"evaluation at step {step}{further}"
