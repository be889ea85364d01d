"""Programs that every sandbox must treat alike: one sandbox each in the fast tests, in turn.

Which sandboxes a machine has shows only when a test runs, so a turn is a number until then: without
a Docker engine its programs go to the embedded sandboxes. Slow tests run every program on all.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack

import pytest

TURN = "turn "


def turns_and_pairs(
    programs: Collection[str], sandboxes: Sequence[str], first: Collection[str] = ()
) -> list:
    """Parameters (program, sandbox or turn); `first`: programs that the first sandbox must have."""
    turns = [
        (0 if name in first else index % len(sandboxes), name)
        for index, name in enumerate(programs)
    ]
    in_turn = [pytest.param(name, f"{TURN}{turn}") for turn, name in sorted(turns)]
    return [*in_turn, *(_pair(name, kind) for kind in sandboxes for name in programs)]


def _pair(name: str, kind: str):
    docker = [pytest.mark.docker] if kind == "docker" else []
    return pytest.param(name, kind, marks=[pytest.mark.slow, *docker])


def sandbox_in_turn(
    choice: str, sandboxes: Sequence[str], lacking: Callable[[str], str | None]
) -> str:
    """Return the sandbox: `choice`, or of those that this machine has the one whose turn it is."""
    if not choice.startswith(TURN):
        return choice
    here = [name for name in sandboxes if not lacking(name)] or sandboxes
    return here[int(choice.removeprefix(TURN)) % len(here)]


class OneOpen(ExitStack):
    """The sandbox that the tests have come to; the one before is closed first."""

    def __init__(self, open_one: Callable[[str], AbstractContextManager]):
        super().__init__()
        self.open_one, self.name, self.opened = open_one, None, None

    def at(self, name: str):
        """What `open_one` gives for this sandbox."""
        if name != self.name:
            self.close()
            self.name = None  # as long as it is not open
            self.opened = self.enter_context(self.open_one(name))
            self.name = name
        return self.opened
