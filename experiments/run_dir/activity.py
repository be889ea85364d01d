"""The present activity of a run: a phase and its counters, which the display shows.

The loop and the judge's thread write; the display's thread reads. Counters say how far a phase is,
and decide nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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
