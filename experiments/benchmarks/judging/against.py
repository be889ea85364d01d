"""The training workload, on this checkout alone or against another one, round by round in turn."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.benchmarks.judging.training import Cell, cells

if TYPE_CHECKING:
    import pandas as pd

BACKENDS = ("namespaces", "landlock", "docker")
HERE = Path(__file__).resolve().parents[3]
WARM_UPS = 2  # rounds that are not counted: from these a judge knows what most programs come to
FIGURES = ("wall_ms", "sandbox_ms", "host_ms", "engine_ms")


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with that commit and, in place of its own, the benchmarks of this checkout."""
    with tempfile.TemporaryDirectory(prefix="spo-bench-") as temporary:
        folder = Path(temporary) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            shutil.rmtree(folder / "experiments" / "benchmarks", ignore_errors=True)
            shutil.copytree(
                HERE / "experiments" / "benchmarks", folder / "experiments" / "benchmarks"
            )
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


class ProbeProcess:
    """A checkout's probe of one backend, at the other end of two pipes."""

    def __init__(self, folder: Path, backend: str, workload: list[Cell]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmarks.judging.probe", backend],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with contextlib.suppress(BrokenPipeError):  # it said already why it cannot
            self._say([cell.plain() for cell in workload])
        self.unavailable: str | None = self._hear().get("unavailable")

    def measure(self, cell: str) -> dict:
        """One pass over a cell. Raises RuntimeError if the probe ended."""
        self._say(cell)
        return self._hear()

    def close(self) -> None:
        """Let it end by the end of its stdin."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _say(self, value: object) -> None:
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the probe ended; what it wrote above says why")
        return json.loads(line)


def run(rounds: int, commit: str | None, backends: Sequence[str] = BACKENDS) -> pd.DataFrame:
    """A row for each round, backend, cell and checkout; the first passes of each are not in it."""
    import pandas as pd

    workload = cells()
    rows = []
    with contextlib.ExitStack() as stack:
        folders = {"now": HERE}
        if commit:
            folders = {"before": stack.enter_context(checkout(commit)), **folders}
        for backend in backends:
            probes = {}
            for name, folder in folders.items():
                probe = ProbeProcess(folder, backend, workload)
                stack.callback(probe.close)
                if probe.unavailable:
                    print(f"{backend}, {name}: left out: {probe.unavailable}")
                else:
                    probes[name] = probe
            rows += _rounds(rounds, backend, workload, probes)
            for probe in probes.values():
                probe.close()
    return pd.DataFrame(rows)


def _rounds(
    rounds: int, backend: str, workload: list[Cell], probes: dict[str, ProbeProcess]
) -> Iterator[dict]:
    for number in range(-WARM_UPS, rounds):
        order = list(probes)[:: 1 if number % 2 else -1]  # neither is always the first
        for cell in workload:
            for name in order:
                row = probes[name].measure(cell.name)
                if number >= 0:
                    where = {"round": number, "backend": backend, "cell": cell.name}
                    yield where | {"checkout": name} | row
        which = f"round {number + 1} of {rounds}" if number >= 0 else "warm"
        print(f"{backend}: {which}", flush=True)


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Medians over rounds of ms a program, by backend, cell and checkout.

    With two checkouts also the ratio now / before of wall and of all CPU time, each taken within a
    round, with its least and greatest.
    """
    keys = ["backend", "cell"]
    table = table.set_index(["round", *keys, "checkout"])
    seconds = table[["wall_s", "sandbox_cpu_s", "host_cpu_s", "engine_cpu_s"]]
    costs = seconds.div(table["programs"], axis=0) * 1000
    costs.columns = list(FIGURES)
    costs["cpu_ms"] = costs[["sandbox_ms", "host_ms", "engine_ms"]].sum(axis=1)
    medians = costs.groupby([*keys, "checkout"], sort=False).median()
    summary = medians.unstack("checkout")
    summary.columns = [f"{figure} {checkout}" for figure, checkout in summary.columns]
    if "before" in table.index.get_level_values("checkout"):
        for figure in ("wall_ms", "cpu_ms"):
            both = costs[figure].unstack("checkout")
            ratios = (both["now"] / both["before"]).groupby(keys, sort=False)
            name = figure.removesuffix("_ms")
            summary[f"{name} ratio"] = ratios.median()
            summary[f"{name} least"], summary[f"{name} most"] = ratios.min(), ratios.max()
    return summary.reset_index()
