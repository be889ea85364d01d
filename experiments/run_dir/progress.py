"""The display of a running run: progress bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 15.0  # between lines without a terminal


class Display:
    """Training and evaluation progress on stderr."""

    def __init__(self, steps: int, label: str = "") -> None:
        """`label`: begins each line where other runs write too; there are no bars then."""
        self.label = label
        self.console = Console(
            stderr=True, highlight=False, force_terminal=False if label else None
        )
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.training = self.bars.add_task("training", total=steps, note="", visible=steps > 0)
        self.steps = steps
        self.pass_at: dict[int, float] = {}  # k → pass@k of the last evaluation
        self._last_line = time.monotonic()
        self._begun: tuple[float, int] | None = None  # when, and after which step

    def __enter__(self) -> Display:
        self.bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bars.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(f"{self.label}{text}", soft_wrap=True, markup=False)

    def step(self, step: int, row: dict[str, Any], seconds: float) -> None:
        """Show a training step that took `seconds`."""
        rate = row["generated_tokens"] / max(seconds, 1e-9)
        k, score = next(iter(self.pass_at.items()))
        note = f"reward {row['reward_mean']:.3f}  pass@{k} {score:.3f}  {rate:,.0f} tokens/s"
        self.bars.update(self.training, completed=step, note=note)
        now = time.monotonic()
        self._begun = self._begun or (now - seconds, step - 1)
        if self.bars.disable and (now - self._last_line > LINE_EVERY_S or step == self.steps):
            begin, first = self._begun
            left = (now - begin) / (step - first) * (self.steps - step)
            self.say(f"step {step}/{self.steps}  {note}  {left:,.0f} s left")
            self._last_line = now

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
        scores = "  ".join(f"pass@{k} {score:.3f}" for k, score in pass_at.items())
        source = f" (cached in {cache_file})" if cache_file else ""
        self.say(f"{_evaluation(step, temperature)}: {scores}{source}")

    def evaluating(
        self, step: int, total: int, temperature: float | None = None
    ) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Add a bar for an evaluation; return how to advance it, and how to remove it."""
        bar = self.bars.add_task(_evaluation(step, temperature), total=total, note="")
        return lambda count: self.bars.advance(bar, count), lambda: self.bars.remove_task(bar)


def _evaluation(step: int, temperature: float | None) -> str:
    further = "" if temperature is None else f", temperature {temperature:g}"
    return f"evaluation at step {step}{further}"
