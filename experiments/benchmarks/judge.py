"""`make bench-judge`: CPU and wall time of judging a program, on every backend.

The workloads are those of training. `against=COMMIT` measures this checkout and that commit in
turn, with the same bytes to judge. It supports commits with this layout of `envs`, from which
`judge_probe.py` imports.
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
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT, Row, ratios, row
from experiments.errors import UserError
from experiments.studies.cli import choose

BACKENDS = ("namespaces", "landlock", "docker")
WARM_UPS = 2  # rounds after which a judge can tell programs that will pass
GOALS_MS = {"wrong, 5 tests": 4.5, "right, 1 test": 4.0}  # CPU time of a program


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 3
    against: str | None = None  # a commit
    backends: str | None = None  # of BACKENDS, separated by commas


def main(options: Options) -> None:
    """Measure and write `judge.json`."""
    backends = choose("backends", options.backends, BACKENDS)
    rows = measure_judge(options.rounds, options.against, backends)
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
        name = f"total_{rng.randrange(10**9)}"
        crash = not right and rng.randrange(CRASH_EVERY) == 0
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
        with contextlib.suppress(BrokenPipeError):  # it has already said what is missing
            self._send([asdict(workload) for workload in workloads])
        self.unavailable: str | None = self._receive().get("unavailable")

    def measure(self, workload: str) -> dict[str, Any]:
        """Cost of one pass. Raises RuntimeError if the probe ended."""
        self._send(workload)
        return self._receive()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _send(self, value: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the probe ended; its output above says why")
        return json.loads(line)


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


def measure_judge(rounds: int, commit: str | None, backends: Sequence[str]) -> list[Row]:
    """Cost of a program of each workload, on each backend, at each checkout."""
    rows, made = [], workloads()
    with contextlib.ExitStack() as stack:
        folders = {"now": ROOT}
        if commit:
            folders["before"] = stack.enter_context(checkout(commit))
        for backend in backends:
            probes = {}
            for name, folder in folders.items():
                probe = ProbeProcess(folder, backend, made)
                stack.callback(probe.close)
                if probe.unavailable:
                    print(f"{backend}, {name}: left out: {probe.unavailable}")
                else:
                    probes[name] = probe
            for workload in made:
                rows += _measure_workload(rounds, backend, workload.name, probes)
            for probe in probes.values():
                probe.close()
    if not rows:
        raise UserError("this machine has none of these backends; see make doctor")
    return rows


def _measure_workload(
    rounds: int, backend: str, workload: str, probes: dict[str, ProbeProcess]
) -> list[Row]:
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(-WARM_UPS, rounds):
        for name in list(probes)[:: 1 if number % 2 else -1]:  # neither is always the first
            cost = probes[name].measure(workload)
            if number >= 0:
                for measure in ("cpu_s", "wall_s"):
                    costs[name][measure].append(1000 * cost[measure] / cost["programs"])
    return summarise(f"{backend}: {workload}", GOALS_MS.get(workload), costs)


def summarise(case: str, goal: float | None, costs: dict[str, dict[str, list[float]]]) -> list[Row]:
    """Rows of each checkout's costs, and of the ratios now / before within a round."""
    rows = []
    for measure, words in (("cpu_s", "CPU time a program"), ("wall_s", "wall time a program")):
        for name, values in costs.items():
            at_most = goal if (measure, name) == ("cpu_s", "now") else None
            rows.append(row(f"{case}, {name}", words, values[measure], "ms", at_most=at_most))
        if "before" in costs and "now" in costs:
            changes = ratios(costs["now"][measure], costs["before"][measure])
            rows.append(row(f"{case}, now to before", words, changes))
    return rows


if __name__ == "__main__":
    common.command(Options, main)
