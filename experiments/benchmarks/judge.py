"""`make bench-judge`: CPU and wall time of judging a program, on every backend.

The workloads are short programs as a model writes them in training. With `task=NAME path=PATH` they
are a data set's own programs, which differ: up to hundreds of tests, large inputs, programs that
take seconds. Those are judged without a sandbox too, in turn: by a new Python process for each
test, with our checker, and by the judge of verl, if `verl=FOLDER` names one (pip install --no-deps
--target FOLDER verl==0.9.1). Both run the programs with this user's rights: only for data sets that
you trust.

`against=COMMIT` measures this checkout and that commit in turn, with the same bytes to judge. It
supports commits with this layout of `envs`, from which `judge_probe.py` imports. For Docker, CPU
time is that of the whole machine, so nothing else may run on it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from envs.tasks.task_cli import task_config
from envs.validate import load_problems
from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT, Row, Values, alternate, compare, row
from experiments.benchmarks.judge_probe import ACCEPTED, PROCESSES, REJECTED, VERL, Workload
from experiments.errors import UserError
from experiments.run_dir.machine import machine_cpu_s, own_cpu_s
from experiments.studies.cli import choose

BACKENDS = ("namespaces", "landlock", "docker")
WARM_UPS = 2  # rounds after which a judge can tell programs that will pass
NEW_PROCESSES = "a new process for each test"
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
    """`judge_probe` in a checkout, for one way to judge, behind two pipes."""

    def __init__(self, folder: Path, way: str, workloads: Sequence[Workload]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmarks.judge_probe", way],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Docker's engine and its containers are no descendants of ours.
        self._cpu_s = machine_cpu_s if way == "docker" else own_cpu_s
        self.unavailable: str | None = self.ask([asdict(each) for each in workloads])["unavailable"]

    def close(self) -> None:
        self._process.communicate()

    def ask(self, question: object) -> dict[str, Any]:
        """Send all workloads, or the name of one to judge. Raises RuntimeError if it ended."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(question), file=self._process.stdin, flush=True)
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise RuntimeError("the probe ended; its output above says why")

    def measure(self, workload: str, number: int = 0) -> dict[str, float]:
        """Counts of one pass, and its seconds."""
        seconds = common.start_timer(self._cpu_s)
        return self.ask(workload) | seconds()


@contextlib.contextmanager
def open_probes(
    ways: Mapping[str, tuple[Path, str]], workloads: Sequence[Workload]
) -> Iterator[dict[str, ProbeProcess]]:
    """A probe for each case, whose checkout and way are given, but those that are unavailable."""
    with contextlib.ExitStack() as stack:
        probes = {}
        for case, (folder, way) in ways.items():
            probe = ProbeProcess(folder, way, workloads)
            stack.callback(probe.close)
            if probe.unavailable:
                print(f"{way}, {case}: left out: {probe.unavailable}")
            else:
                probes[case] = probe
        yield probes


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary copy of the commit's files, with the probe of this checkout."""
    probe = Path("experiments", "benchmarks", "judge_probe.py")
    git = ["git", "-C", str(ROOT), "archive", commit]
    packed = subprocess.run(git, capture_output=True)
    if packed.returncode:
        reason = packed.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UserError(f"against={commit}: {reason.removeprefix('fatal: ')}")
    archive = packed.stdout
    with tempfile.TemporaryDirectory(prefix="spo-bench-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        copy = Path(folder) / probe
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / probe, copy)
        yield Path(folder)


def measure(
    ways: Mapping[str, tuple[Path, str]], workloads: Sequence[Workload], rounds: int, warm_ups: int
) -> Iterator[tuple[str, Values, Values]]:
    """Measure each workload in all ways, in turn → its name, costs, milliseconds per program."""
    with open_probes(ways, workloads) as probes:
        for name in [workload.name for workload in workloads if probes]:
            cases = {case: partial(probe.measure, name) for case, probe in probes.items()}
            costs = alternate(cases, rounds, warm_ups)
            yield name, costs, {case: list(map(per_program, each)) for case, each in costs.items()}


def per_program(cost: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds per program of one pass."""
    keys = ("CPU time", "wall time")
    return {f"{key} per program": 1000 * cost[key] / cost["programs"] for key in keys}


def measure_backend(rounds: int, folders: Mapping[str, Path], backend: str) -> list[Row]:
    """Rows of all workloads; none if the machine lacks the backend."""
    ways = {name: (folder, backend) for name, folder in folders.items()}
    found = measure(ways, workloads(), rounds, WARM_UPS)
    return [each for name, _, times in found for each in summarise(backend, name, times)]


def summarise(backend: str, workload: str, values: Values) -> list[Row]:
    """Rows of each checkout's costs, and of those of now relative to those before."""
    goals = {("now", "CPU time per program"): goal} if (goal := GOALS_MS.get(workload)) else {}
    return compare(values, "ms", "before", goals, prefix=f"{backend}: {workload}, ")


# A data set's own programs


def load_rows(task: str, path: Path, programs: int) -> Workload:
    """A sample of the programs for standard input whose outputs a comparison can judge.

    At most two right and two wrong ones of each problem. Raises UserError if there are none.
    """
    problems: list[dict[str, Any]] = []
    responses: list[tuple[int, str, bool]] = []
    try:
        config = task_config([f"task={task}", f"task.path={path}"])
        found = load_problems(config, Counter())
    except ValueError as error:
        raise UserError(str(error)) from error
    for problem in found:
        if not problem.tests or problem.fn_name or problem.checker == "needs_checker":
            continue
        labelled = [(program, True) for program in problem.solutions[:2]]
        labelled += [(program, False) for program in problem.incorrect_solutions[:2]]
        responses += [(len(problems), program, right) for program, right in labelled]
        fields = {key: getattr(problem, key) for key in ("checker", "time_limit_s")}
        fields |= {"memory_limit_mb": problem.memory_limit_mb}
        problems.append({"tests": [(test.input, test.output) for test in problem.tests], **fields})
    if not responses:
        raise UserError(f"path={path}: no program for standard input that a comparison can judge")
    sample = random.Random(0).sample(responses, min(programs, len(responses)))
    return Workload(path.stem, problems, sample, labels_hold=False)


def measure_rows(
    rounds: int,
    folders: Mapping[str, Path],
    backends: Sequence[str],
    workload: Workload,
    verl: Path | None,
) -> list[Row]:
    """Rows of all ways to judge a data set's programs, relative to a new process for each test."""
    ways = {NEW_PROCESSES: (ROOT, PROCESSES)}
    if verl:
        ways["verl's judge"] = (ROOT, verl_folder(verl))
    for name, folder in folders.items():
        ways |= {f"{backend}, {name}": (folder, backend) for backend in backends}
    prefix, labels = f"{workload.name}: ", Counter(right for *_, right in workload.responses)
    ((_, costs, times),) = measure(ways, [workload], rounds, warm_ups=0)  # it is judged once
    rows = compare(times, "ms", NEW_PROCESSES, prefix=prefix)
    for case, passes in costs.items():
        speeds = [cost["programs"] / cost["CPU time"] for cost in passes]
        rows.append(row(prefix + case, "programs per second of a core", speeds, "/s"))
        for agreement, count in ((ACCEPTED, labels[True]), (REJECTED, labels[False])):
            found = [cost[agreement] for cost in passes]
            rows += [row(prefix + case, f"{agreement}, of {count}", found)] if count else []
    return rows


def verl_folder(folder: Path) -> str:
    """The whole path of a folder with verl's judge. Raises UserError if it has none."""
    if not (folder / VERL).is_dir():
        raise UserError(f"verl={folder}: no {VERL} in it; see {__name__}")
    return str(folder.resolve())


# Made programs

READS = (
    "n = int(input())\nvalues = list(map(int, input().split()))\n",
    "import sys\nn, *values = map(int, sys.stdin.read().split())\n",
    "input()\nvalues = [int(word) for word in input().split()]\n",
)
CRASH_EVERY = 4  # wrong programs


def workloads() -> list[Workload]:
    """Short programs, made once, so that all checkouts judge the same bytes."""
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
    rng, made = random.Random(name), Workload(name, [], [])
    for index, count in enumerate(tests):
        problem = _FilteredSum(rng)
        pairs = [problem.test(rng, values or rng.randrange(3, 12)) for _ in range(count)]
        made.problems.append({"tests": pairs})
        for _ in range(group):
            right = rng.random() < right_share
            made.responses.append((index, problem.program(rng, right), right))
    return made


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


if __name__ == "__main__":
    common.command(Options, main)
