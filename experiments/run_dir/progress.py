"""The display of a running run on stderr: bars, and its present activity with counters.

On a terminal the activity is a line below the bars that changes as it goes. Elsewhere, e.g. in a
log file, a line comes every LINE_EVERY_S seconds, also within a long step. The loop and the judge's
thread write the activity, and the display's thread reads it. Counters say how far a phase is, and
decide nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

# of the ledger's phases
VERBS = {
    "generate": "writing",
    "judge": "judging",
    "reference": "scoring with the reference",
    "train": "learning",
    "sync": "passing weights on",
    "evaluate": "evaluating",
}
RATE_AFTER_S = 1.0  # before, a rate says nothing


@dataclass
class Activity:
    """What a run does, and how far it is."""

    verb: str = ""
    unit: str = ""  # of what is counted
    total: int = 0  # 0: nothing is counted
    done: int = 0
    tokens: int = 0  # drawn
    judged: int | None = None  # programs judged while others are written
    since: float = field(default_factory=time.monotonic)

    def begin(self, verb: str) -> None:
        """Begin a phase, whose counters are at zero."""
        self.verb, self.unit, self.total, self.done = verb, "", 0, 0
        self.tokens, self.judged, self.since = 0, None, time.monotonic()

    @contextmanager
    def phase(self, verb: str) -> Iterator[None]:
        """Show this phase within the block, and the enclosing one after it."""
        outer = self.verb
        self.begin(verb)
        try:
            yield
        finally:
            self.begin(outer)

    def expect(self, total: int, unit: str) -> None:
        """Count up to `total` from now on."""
        self.total, self.unit, self.done = total, unit, 0

    def advance(self, count: int) -> None:
        """Count finished units."""
        self.done = min(self.total, self.done + count)

    def draw(self, tokens: int) -> None:
        """Count drawn tokens."""
        self.tokens += tokens

    def text(self) -> str:
        """Say it, e.g. "writing 37/64 responses, 4,210 tokens, 118/s · judged 12"."""
        if not self.verb:
            return ""
        text = self.verb
        if self.total:
            text += f" {self.done}/{self.total} {self.unit}"
        seconds = time.monotonic() - self.since
        if self.tokens:
            text += f", {self.tokens:,} tokens"
            if seconds > RATE_AFTER_S:
                text += f", {self.tokens / seconds:,.0f}/s"
        if self.judged is not None:
            text += f" · judged {self.judged}"
        return text


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

    def __init__(self, steps: int) -> None:
        self.steps, self.activity = steps, Activity()
        self.pass_at: dict[int, float] = {}  # k → pass@k of the last evaluation
        self._note = "{score}"  # of the last step
        self._done = 0  # steps
        self._last_line = time.monotonic()
        self._stopped = threading.Event()
        self.console = Console(stderr=True, highlight=False)
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
            self.console.print(line, soft_wrap=True, markup=False)

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
