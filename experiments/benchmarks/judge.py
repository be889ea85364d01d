"""`make bench-judge`: CPU and wall time of judging a program, on every backend.

The workloads are those of training, or with `task=NAME path=PATH` a data set's own programs
(`judge_rows.py`). `against=COMMIT` measures this checkout and that commit in turn, with the same
bytes to judge. It supports commits with this layout of `envs`, from which `judge_probe.py`
imports. For Docker, CPU time is that of the whole machine, so nothing else may run on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import (
    ROOT,
    Row,
    Values,
    alternate,
    compare,
    in_new_process,
    row,
)
from experiments.benchmarks.judge_made import workloads
from experiments.benchmarks.judge_probe import ACCEPTED, REJECTED, Workload
from experiments.benchmarks.judge_rows import RowWorkload, for_probe, load_rows, measure
from experiments.errors import UserError
from experiments.studies.cli import choose

BACKENDS = ("namespaces", "landlock", "docker")
WARM_UPS = 2  # rounds after which a judge can tell programs that will pass
NEW_PROCESSES, VERL = "a new process for each test", "verl's judge"
GOALS_MS = {"wrong, 5 tests": "≤ 4.5", "right, 1 test": "≤ 4"}  # CPU time per program


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 3
    against: str | None = None  # a commit to compare with
    backends: str | None = None  # of namespaces, landlock, docker, with commas; by default all
    task: str | None = None  # with path: judge a data set's own programs
    path: Path | None = None  # with task: the data set's rows
    programs: PositiveInt = 200  # number of the data set's programs, at most
    verl: Path | None = None  # a folder with verl's judge, for path


def main(options: Options) -> None:
    """Measure and write `judge.json`."""
    rows: list[Row] = []
    backends, folders = choose("backends", options.backends, BACKENDS), {"now": ROOT}
    if (options.task is None) != (options.path is None):
        raise UserError("task=NAME and path=PATH are given together")
    if options.verl and not options.path:
        raise UserError("verl=FOLDER needs a data set: task=NAME path=PATH")
    with contextlib.ExitStack() as stack:
        if options.against:
            folders["before"] = stack.enter_context(checkout(options.against))
        if options.task and options.path:
            workload = load_rows(options.task, options.path, options.programs)
            rows += measure_rows(options.rounds, folders, backends, workload, options.verl)
        else:
            for backend in backends:
                rows += measure_backend(options.rounds, folders, backend)
    if not rows:
        raise UserError("this machine has none of these backends; see make doctor")
    facts = {"task": options.task, "path": options.path and options.path.name}
    given = {key: value for key, value in facts.items() if value}
    common.finish("judge", rows, options.out, against=options.against or "nothing", **given)


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
        return per_program(self.ask(workload))

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


def per_program(cost: dict[str, float]) -> dict[str, float]:
    """Milliseconds per program of one pass."""
    return {
        f"{measure} time per program": 1000 * cost[key] / cost["programs"]
        for measure, key in (("CPU", "cpu_s"), ("wall", "wall_s"))
    }


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


def measure_rows(
    rounds: int,
    folders: dict[str, Path],
    backends: Sequence[str],
    workload: RowWorkload,
    verl: Path | None,
) -> list[Row]:
    """Rows of all ways to judge a data set's programs, relative to a new process for each test."""
    cases: dict[str, Callable[[int], dict[str, float]]] = {
        NEW_PROCESSES: lambda _: in_new_process(measure, workload, None)
    }
    if verl:
        cases[VERL] = lambda _: in_new_process(measure, workload, verl)
    with contextlib.ExitStack() as stack:
        for name, folder in folders.items():
            for backend in backends:
                probe = ProbeProcess(folder, backend, [for_probe(workload)])
                stack.callback(probe.close)
                if probe.unavailable:
                    print(f"{backend}, {name}: left out: {probe.unavailable}")
                else:
                    cases[f"{backend}, {name}"] = partial(_ask, probe, workload.name)
        costs = alternate(cases, rounds, warm_ups=0)  # a data set is judged once
    return rows_of_costs(costs, workload)


def _ask(probe: ProbeProcess, workload: str, number: int) -> dict[str, float]:
    return probe.ask(workload)


def rows_of_costs(costs: Values, workload: RowWorkload) -> list[Row]:
    """Rows of time per program, programs per second and core, and agreement with the labels."""
    prefix = f"{workload.name}: "
    times = {case: [per_program(cost) for cost in each] for case, each in costs.items()}
    rows = compare(times, "ms", NEW_PROCESSES, prefix=prefix)
    labels = Counter(right for *_, right in workload.responses)
    for case, each in costs.items():
        speeds = [cost["programs"] / cost["cpu_s"] for cost in each]
        rows.append(row(prefix + case, "programs per second of a core", speeds, "/s"))
        for agreement, count in ((ACCEPTED, labels[True]), (REJECTED, labels[False])):
            if count:
                found = [cost[agreement] for cost in each]
                rows.append(row(prefix + case, f"{agreement}, of {count}", found))
    return rows


def summarise(backend: str, workload: str, values: Values) -> list[Row]:
    """Rows of each checkout's costs, and of those of now relative to those before."""
    goals = {("now", "CPU time per program"): goal} if (goal := GOALS_MS.get(workload)) else {}
    return compare(values, "ms", "before", goals, prefix=f"{backend}: {workload}, ")


if __name__ == "__main__":
    common.command(Options, main)
