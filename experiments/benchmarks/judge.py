"""`make bench-judge`: CPU and wall time of judging a program, on every backend.

The workloads are those of training. `against=COMMIT` measures this checkout and that commit in
turn, with the same bytes to judge. It supports commits with this layout of `envs`, from which
`judge_probe.py` imports. For Docker, CPU time is that of the whole machine, so nothing
else may run on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT, Row, Values, alternate, compare
from experiments.errors import UserError
from experiments.studies.cli import choose

BACKENDS = ("namespaces", "landlock", "docker")
WARM_UPS = 2  # rounds after which a judge can tell programs that will pass
GOALS_MS = {"wrong, 5 tests": "≤ 4.5", "right, 1 test": "≤ 4"}  # CPU time per program


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 3
    against: str | None = None  # a commit
    backends: str | None = None  # of BACKENDS, separated by commas


def main(options: Options) -> None:
    """Measure and write `judge.json`."""
    rows: list[Row] = []
    backends, folders = choose("backends", options.backends, BACKENDS), {"now": ROOT}
    with contextlib.ExitStack() as stack:
        if options.against:
            folders["before"] = stack.enter_context(checkout(options.against))
        for backend in backends:
            rows += measure_backend(options.rounds, folders, backend)
    if not rows:
        raise UserError("this machine has none of these backends; see make doctor")
    common.finish("judge", rows, options.out, against=options.against or "nothing")


READS = (
    "n = int(input())\nvalues = list(map(int, input().split()))\n",
    "import sys\nn, *values = map(int, sys.stdin.read().split())\n",
    "input()\nvalues = [int(word) for word in input().split()]\n",
)
CRASH_EVERY = 4  # wrong programs


@dataclass(frozen=True)
class Workload:
    """Problems as (input, output) pairs, and (problem, program, right) for each response."""

    name: str
    problems: list[list[tuple[str, str]]]
    responses: list[tuple[int, str, bool]]


def workloads() -> list[Workload]:
    """Plain data, made once, so that all checkouts judge the same bytes."""
    rising = [1 + index % 10 for index in range(32)]  # tests of each problem
    return [
        _workload("training", rising, group=8, right_share=0.1),  # early in a run
        _workload("most pass", rising[:16], group=8, right_share=0.8),  # late in a run
        _workload("right, 1 test", [1] * 16, group=6, right_share=1.0),
        _workload("right, 5 tests", [5] * 16, group=3, right_share=1.0),
        _workload("right, 40 tests", [40] * 16, group=1, right_share=1.0),
        _workload("wrong, 5 tests", [5] * 16, group=6, right_share=0.0),
        _workload("right, 20 large", [20] * 16, group=1, right_share=1.0, values=1000),
    ]


def _workload(
    name: str, tests: Sequence[int], group: int, right_share: float, values: int | None = None
) -> Workload:
    """`group` short programs for each problem, no two of them alike. `values`: of each test."""
    rng, problems, responses = random.Random(name), [], []
    for index, count in enumerate(tests):
        problem = _FilteredSum(rng)
        problems.append([problem.test(rng, values or rng.randrange(3, 12)) for _ in range(count)])
        for _ in range(group):
            right = rng.random() < right_share
            responses.append((index, problem.program(rng, right), right))
    return Workload(name, problems, responses)


class _FilteredSum:
    """A problem: map the values with a given remainder, then sum them."""

    def __init__(self, rng: random.Random) -> None:
        self.divisor, self.remainder = rng.randrange(2, 6), rng.randrange(2)
        self.factor, self.shift = rng.randrange(1, 9), rng.randrange(100)

    def test(self, rng: random.Random, count: int) -> tuple[str, str]:
        values = [rng.randrange(100) for _ in range(count)] + [self.remainder]
        counted = [value for value in values if value % self.divisor == self.remainder]
        total = sum(self.factor * value + self.shift for value in counted)
        return f"{len(values)}\n{' '.join(map(str, values))}\n", f"{total}\n"

    def program(self, rng: random.Random, right: bool) -> str:
        """A unique program. Wrong ones print one too many, or crash."""
        name, crash = f"total_{rng.randrange(10**9)}", not right and rng.randrange(CRASH_EVERY) == 0
        mapped = "v // (n - n)" if crash else f"{self.factor} * v + {self.shift}"
        return (
            f"{READS[0] if crash else rng.choice(READS)}{name} = {0 if right else 1}\n"
            f"for v in values:\n    if v % {self.divisor} == {self.remainder}:\n"
            f"        {name} += {mapped}\nprint({name})\n"
        )


class ProbeProcess:
    """`judge_probe` of one backend in a checkout, behind two pipes."""

    def __init__(self, folder: Path, backend: str, workloads: Sequence[Workload]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmarks.judge_probe", backend],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        answer = self.ask([asdict(workload) for workload in workloads])
        self.unavailable: str | None = answer.get("unavailable")

    def per_program(self, workload: str, number: int) -> dict[str, float]:
        """Milliseconds per program of one pass."""
        cost = self.ask(workload)
        return {
            f"{measure} time per program": 1000 * cost[key] / cost["programs"]
            for measure, key in (("CPU", "cpu_s"), ("wall", "wall_s"))
        }

    def close(self) -> None:
        self._process.communicate()

    def ask(self, question: object) -> dict[str, Any]:
        """Send all workloads, or the name of one to measure. Raises RuntimeError if it ended."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(question), file=self._process.stdin, flush=True)
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise RuntimeError("the probe ended; its output above says why")


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary worktree of the commit, with the probe of this checkout."""
    probe = Path("experiments", "benchmarks", "judge_probe.py")
    with tempfile.TemporaryDirectory(prefix="spo-bench-") as temporary:
        folder = Path(temporary) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            (folder / probe).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / probe, folder / probe)
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def measure_backend(rounds: int, folders: dict[str, Path], backend: str) -> list[Row]:
    """Rows of all workloads; none if the machine lacks the backend."""
    rows, made = [], workloads()
    with contextlib.ExitStack() as stack:
        probes = {}
        for name, folder in folders.items():
            probe = ProbeProcess(folder, backend, made)
            stack.callback(probe.close)
            if probe.unavailable:
                print(f"{backend}, {name}: left out: {probe.unavailable}")
            else:
                probes[name] = probe
        for workload in [each.name for each in made if probes]:
            cases = {name: partial(probe.per_program, workload) for name, probe in probes.items()}
            rows += summarise(backend, workload, alternate(cases, rounds, WARM_UPS))
    return rows


def summarise(backend: str, workload: str, values: Values) -> list[Row]:
    """Rows of each checkout's costs, and of those of now relative to those before."""
    goals = {("now", "CPU time per program"): goal} if (goal := GOALS_MS.get(workload)) else {}
    return compare(values, "ms", "before", goals, prefix=f"{backend}: {workload}, ")


if __name__ == "__main__":
    common.command(Options, main)
