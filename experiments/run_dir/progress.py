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
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
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
    finished: Sized | None = None  # counts instead of `done`
    tokens: int = 0  # drawn
    judged: Sized | None = None  # judgements that are made while other responses are written
    since: float = field(default_factory=time.monotonic)

    def begin(self, verb: str) -> None:
        """Begin a phase, whose counters are at zero."""
        self.verb, self.tokens, self.judged, self.since = verb, 0, None, time.monotonic()
        self.expect(0, "")

    @contextmanager
    def phase(self, verb: str) -> Iterator[None]:
        """Show this phase within the block, and the enclosing one after it."""
        outer = self.verb
        self.begin(verb)
        try:
            yield
        finally:
            self.begin(outer)

    def expect(self, total: int, unit: str, finished: Sized | None = None) -> None:
        """Count up to `total` from now on, by `advance` or by the length of `finished`."""
        self.total, self.unit, self.done, self.finished = total, unit, 0, finished
        self.before = len(finished or ())

    @property
    def count(self) -> int:
        """Units done."""
        return self.done if self.finished is None else len(self.finished)

    def advance(self, count: int) -> None:
        """Count finished units."""
        self.done = min(self.total, self.done + count)

    def draw(self, tokens: int) -> None:
        """Count drawn tokens."""
        self.tokens += tokens

    def text(self) -> str:
        """Say it: "writing 37/64 responses, 4,210 tokens, 118/s · judged 12"."""
        if not self.verb:
            return ""
        text = self.verb
        if self.total:
            text += f" {self.count}/{self.total} {self.unit}"
        seconds = time.monotonic() - self.since
        if self.finished is not None and self.count > self.before and seconds > RATE_AFTER_S:
            left = seconds * (self.total - self.count) / (self.count - self.before)
            text += f", {left:.0f} s left" if left < 100 else f", {left / 60:.0f} min left"
        if self.tokens:
            text += f", {self.tokens:,} tokens"
            if seconds > RATE_AFTER_S:
                text += f", {self.tokens / seconds:,.0f}/s"
        if self.judged is not None:
            text += f" · judged {len(self.judged)}"
        return text


LINE_EVERY_S = 30.0  # between lines without a terminal
CHECK_EVERY_S = 1.0


class Bars(Progress):
    """Bars, and below them the activity, rendered anew at each refresh."""

    def __init__(self, activity: Activity, console: Console) -> None:
        self.activity = activity
        self.following: TaskID | None = None  # bar that shows the activity's count
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
        now = self.activity
        if self.following is not None and now.total:
            note = "written" if now.finished is None else "judged"
            self.update(self.following, completed=now.count, total=now.total, note=note)
        yield self.make_tasks_table(self.tasks)
        yield Text(now.text(), no_wrap=True, overflow="ellipsis")


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
        self.bars = Bars(self.activity, self.console)
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

    def evaluated(
        self, name: str, pass_at: dict[int, float], cache_file: Path | None, main: bool
    ) -> None:
        """Show an evaluation; `cache_file`: the file that it was read from.

        `main`: it is at `eval.temperature`, and its pass@k stands beside the training's progress.
        """
        scores = "  ".join(f"pass@{k} {score:.3f}" for k, score in pass_at.items())
        self.say(f"{name}: {scores}" + f" (cached in {cache_file})" * bool(cache_file))
        if main:
            self.pass_at = pass_at
            self._update()
            if self._done == self.steps and self.bars.disable:
                self._write_line()

    @contextmanager
    def evaluating(self, name: str, total: int) -> Iterator[None]:
        """Show a bar for an evaluation of `total` responses: those written, then those judged."""
        bar = self.bars.following = self.bars.add_task(name, total=total, note="")
        try:
            yield
        finally:
            self.bars.following = None
            self.bars.remove_task(bar)

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
