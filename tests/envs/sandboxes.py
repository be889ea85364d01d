"""The sandboxes of this machine, for programs that each must treat alike, and ways to run them.

In the fast tests each program meets one sandbox: they take turns. Slow tests run every program on
all. Which sandboxes a machine has shows only when a test runs, so a turn is a number until then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

import pytest

from envs.sandbox import SandboxConfig, open_sandbox
from envs.sandbox.base import Execution, Job, KeepGoing, Sandbox
from envs.sandbox.docker import unavailable
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
from envs.sandbox.pool import Pool

SANDBOXES = ["namespaces", "landlock", "docker"]
EVERY_SANDBOX = [*SANDBOXES[:2], pytest.param("docker", marks=pytest.mark.docker)]
TURN = "turn "
# The two paths to a first result (one-shot process, or runner for all tests) → whether
# its jobs are promising.
PATHS = {"one_shot": False, "served": True}


@functools.cache
def lacking(name: str) -> str | None:
    """Why this machine does not have a sandbox; None if it has."""
    return unavailable() if name == "docker" else form_unavailable(name)


def open_one(name: str) -> Sandbox:
    """One worker of a sandbox; skips where the machine has none."""
    if reason := lacking(name):
        pytest.skip(f"no {name} sandbox: {reason}")
    if name == "docker":
        return open_sandbox(SandboxConfig(kind="docker", workers=1))
    return EmbeddedSandbox(workers=1, form=name)


class OnPath:
    """A sandbox whose jobs all take one path, which it asserts; usable by the judge and alone."""

    def __init__(self, pool: Pool, path: str) -> None:
        self._pool, self._path, self.platform = pool, path, pool.platform

    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        before = self._pool.one_shots
        jobs = [replace(job, promising=PATHS[self._path]) for job in jobs]
        yield from self._pool.run(jobs, keep_going)
        shots = self._pool.one_shots - before
        assert shots >= len(jobs) if self._path == "one_shot" else shots == 0


def turns_and_pairs(programs: Collection[str], first: Collection[str] = ()) -> list:
    """Parameters (program, sandbox or turn); `first`: programs that the first sandbox must have."""
    turns = [
        (0 if name in first else index % len(SANDBOXES), name)
        for index, name in enumerate(programs)
    ]
    in_turn = [pytest.param(name, f"{TURN}{turn}") for turn, name in sorted(turns)]
    marks = {"docker": [pytest.mark.docker]}
    return in_turn + [
        pytest.param(name, kind, marks=[pytest.mark.slow, *marks.get(kind, [])])
        for kind in SANDBOXES
        for name in programs
    ]


def sandbox_in_turn(choice: str) -> str:
    """Return the sandbox: `choice`, or of those that this machine has the one whose turn it is."""
    if not choice.startswith(TURN):
        return choice
    here = [name for name in SANDBOXES if not lacking(name)] or SANDBOXES
    return here[int(choice.removeprefix(TURN)) % len(here)]


class OneOpen(ExitStack):
    """The sandbox that the tests have come to; the one before is closed first."""

    def __init__(self, open_one: Callable[[str], AbstractContextManager]):
        super().__init__()
        self.open_one, self.name, self.opened = open_one, None, None

    def at(self, name: str) -> Any:
        """What `open_one` gives for this sandbox."""
        if name != self.name:
            self.close()
            self.name = None  # as long as it is not open
            self.opened = self.enter_context(self.open_one(name))
            self.name = name
        return self.opened
