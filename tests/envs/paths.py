"""The two paths to a first result: a one-shot process, or a runner for all tests of a program."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from envs.sandbox.base import Execution, Job, KeepGoing
from envs.sandbox.pool import Pool

PATHS = {"one_shot": False, "served": True}  # → whether its jobs are promising


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
