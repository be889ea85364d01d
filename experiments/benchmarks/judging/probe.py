"""Judges the cells with the `envs` of the checkout that it is run in, and says what that costs.

    python -m experiments.benchmarks.judging.probe BACKEND

On stdin come lines of JSON: all cells first, then names of cells; for each of these one line goes
to stdout with what one pass over it has cost. Backends: `namespaces`, `landlock`, `docker`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

from envs.judge.judge import Judge, Submission
from envs.problem import Problem, Test
from envs.sandbox.base import Sandbox
from envs.sandbox.docker import DockerSandbox, unavailable
from envs.sandbox.docker_client import connect
from envs.sandbox.embedded import EmbeddedSandbox, why_not
from experiments.benchmarks.judging.meter import Meter

MOST_PASSES = 5


class Probe:
    """One backend with all its workers; each cell has a judge, which keeps what it learns."""

    def __init__(self, sandbox: Sandbox, meter: Meter, cells: list[dict]) -> None:
        self._sandbox, self._meter, self._passes = sandbox, meter, 0
        self._judges = {cell["name"]: Judge(sandbox) for cell in cells}
        self._cells = {cell["name"]: cell for cell in cells}
        self._problems = {cell["name"]: list(_problems(cell)) for cell in cells}

    def measure(self, name: str) -> dict:
        """One pass in which no container was replaced. Raises RuntimeError where there is none, or
        where a verdict is not the expected one."""
        for _ in range(MOST_PASSES):
            row = self._pass(name)
            if row is not None:
                return row
        raise RuntimeError(f"containers ended in each of {MOST_PASSES} passes")

    def _pass(self, name: str) -> dict | None:
        cell, problems, judge = self._cells[name], self._problems[name], self._judges[name]
        self._passes += 1  # no pass finds the programs of another in the judge's cache
        submissions = [
            Submission(problems[at], f"{program}\n# {self._passes}")
            for at, program, _ in cell["responses"]
        ]
        before, start = self._meter.read(), time.perf_counter()
        judgements = judge.judge(submissions)
        wall, after = time.perf_counter() - start, self._meter.read()
        for judgement, (_, program, right) in zip(judgements, cell["responses"], strict=True):
            if (judgement.verdict == "ACCEPTED") is not right:
                raise RuntimeError(f"{judgement.verdict}, {judgement.detail}: {program}")
        if before.containers != after.containers:
            return None
        host, engine = after.host_s - before.host_s, after.engine_s - before.engine_s
        return {
            "programs": len(submissions),
            "tests": sum(judgement.run for judgement in judgements),
            "wall_s": wall,
            "host_cpu_s": host,
            "engine_cpu_s": engine,
            "sandbox_cpu_s": after.all_s - before.all_s - host - engine,
        }


def _problems(cell: dict) -> Iterator[Problem]:
    for number, pairs in enumerate(cell["problems"]):
        tests = tuple(Test(*pair) for pair in pairs)
        yield Problem(f"{cell['name']}/{number}", "", (), tests)


def open_backend(name: str) -> tuple[Sandbox, Meter] | str:
    """The sandbox and the clocks; or why this checkout has not got it here."""
    if name == "docker":
        return unavailable() or (DockerSandbox(), Meter(connect()))
    return why_not(name) or (EmbeddedSandbox(form=name), Meter(None))


def main() -> None:
    """Serve until stdin ends."""
    opened = open_backend(sys.argv[1])
    if isinstance(opened, str):
        print(json.dumps({"unavailable": opened}), flush=True)
        return
    sandbox, meter = opened
    with sandbox:
        probe = Probe(sandbox, meter, json.loads(sys.stdin.readline()))
        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            print(json.dumps(probe.measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
