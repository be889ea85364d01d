"""`make bench which=judge`: CPU and wall time of judging a program, in each sandbox.

The workloads are short programs as a model writes them in training. `against=COMMIT` measures this
checkout and that commit in turn, with the same bytes to judge; `serve` runs in both. For
Docker, CPU time is that of the whole machine, so nothing else may run on it.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT
from experiments.errors import UserError, command
from experiments.run_dir.ledger import machine_cpu_s, own_cpu_s

WARM_UPS = 2  # rounds after which a judge can tell programs that will pass


@dataclass
class Options(common.Options):
    """The command line."""

    rounds: PositiveInt = 3  # of measurements; the median counts
    against: str | None = None  # a commit to compare with
    sandboxes: str = "embedded,docker"  # with commas


def main(options: Options) -> None:
    """Measure and print."""
    workloads = made_workloads()
    with contextlib.ExitStack() as stack:
        folders = {"now": ROOT}
        if options.against:
            folders["before"] = stack.enter_context(checkout(options.against))
        for kind in options.sandboxes.split(","):
            try:
                probes = {
                    case: stack.enter_context(probe(folder, kind, workloads))
                    for case, folder in folders.items()
                }
                for name in workloads:
                    cases = {case: partial(measure, name) for case, measure in probes.items()}
                    values = common.alternate(cases, options.rounds, WARM_UPS)
                    common.report(f"Judging in {kind}: {name}", values, "ms", "before")
            except EOFError:
                print(f"{kind}: left out; the output above says why")


def serve() -> None:
    """Judge workloads with the `envs` of the checkout that this runs in.

    The command line names the sandbox. stdin: a JSON line with all workloads, then the name of a
    workload on each line. stdout: a JSON line for each name, the number of programs of one pass. A
    verdict other than the label raises RuntimeError.
    """
    import json
    import sys

    from envs import Judge, Problem, SandboxConfig, Submission, Test, open_sandbox

    workloads = json.loads(sys.stdin.readline())
    with open_sandbox(SandboxConfig(kind=sys.argv[1])) as sandbox:  # type: ignore[arg-type]
        judges = {name: Judge(sandbox) for name in workloads}  # each stays warm
        for number, line in enumerate(sys.stdin):
            name = json.loads(line)
            problems = [
                Problem(f"{name}/{i}", "", (), tuple(Test(*pair) for pair in tests))
                for i, tests in enumerate(workloads[name]["tests"])
            ]
            responses = workloads[name]["responses"]  # problem, program, whether it is right
            # The number makes the programs new to the judge's cache.
            given = [Submission(problems[i], f"{code}\n# {number}") for i, code, _ in responses]
            for judged, (_, code, right) in zip(judges[name].judge(given), responses, strict=True):
                if (judged.verdict == "ACCEPTED") is not right:
                    raise RuntimeError(f"{judged.verdict}, {judged.detail}: {code}")
            print(json.dumps(len(given)), flush=True)


PROBE = f"{inspect.getsource(serve)}serve()"  # with nothing else of this checkout


@contextlib.contextmanager
def probe(
    folder: Path, kind: str, workloads: Mapping[str, Any]
) -> Iterator[Callable[[str, int], dict[str, float]]]:
    """Run `serve` in a checkout, behind two pipes; yield a function that measures a pass.

    It returns milliseconds a program of a workload. Raises EOFError if the probe has ended.
    """
    command = [sys.executable, "-c", PROBE, kind]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": str(folder)}
    process: Any = subprocess.Popen(command, cwd=folder, env=environment, **pipes)
    # Docker's engine and its containers are no descendants of ours.
    cpu_s = machine_cpu_s if kind == "docker" else own_cpu_s

    def say(message: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(message), file=process.stdin, flush=True)

    def measure(workload: str, number: int) -> dict[str, float]:
        seconds = common.start_timer(cpu_s)
        say(workload)
        if not (line := process.stdout.readline()):
            raise EOFError
        return {f"{name} a program": 1000 * s / int(line) for name, s in seconds().items()}

    with process:
        say(workloads)
        yield measure


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary copy of the commit's files."""
    git = ["git", "-C", str(ROOT), "archive", commit]
    packed = subprocess.run(git, capture_output=True, check=False)
    if packed.returncode:
        raise UserError(f"against={commit}: {packed.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory(prefix="spo-bench-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


# Made programs

READS = (
    "n = int(input())\nvalues = list(map(int, input().split()))\n",
    "import sys\nn, *values = map(int, sys.stdin.read().split())\n",
    "input()\nvalues = [int(word) for word in input().split()]\n",
)
CRASH_EVERY = 4  # wrong programs


def made_workloads() -> dict[str, dict[str, list[Any]]]:
    """Short programs, made once, so that all checkouts judge the same bytes."""
    rising = [1 + index % 10 for index in range(32)]  # tests of each problem
    return {
        "training": _workload("training", rising, group=8, right_share=0.1),  # early in a run
        "most pass": _workload("most pass", rising[:16], group=8, right_share=0.8),  # late
        "right, 1 test": _workload("right, 1 test", [1] * 16, group=6, right_share=1.0),
        "right, 40 tests": _workload("right, 40 tests", [40] * 16, group=1, right_share=1.0),
        "wrong, 5 tests": _workload("wrong, 5 tests", [5] * 16, group=6, right_share=0.0),
    }


def _workload(
    name: str, tests: Sequence[int], group: int, right_share: float
) -> dict[str, list[Any]]:
    """`group` short programs for each problem, no two of them alike.

    A problem: map the values with a given remainder, then sum them. Wrong programs print one too
    many, or crash.
    """
    rng = random.Random(name)
    made: dict[str, list[Any]] = {"tests": [], "responses": []}
    for index, count in enumerate(tests):
        divisor, remainder = rng.randrange(2, 6), rng.randrange(2)
        factor, shift = rng.randrange(1, 9), rng.randrange(100)
        pairs = []
        for _ in range(count):
            values = [rng.randrange(100) for _ in range(rng.randrange(3, 12))] + [remainder]
            total = sum(factor * v + shift for v in values if v % divisor == remainder)
            pairs.append((f"{len(values)}\n{' '.join(map(str, values))}\n", f"{total}\n"))
        made["tests"].append(pairs)
        for _ in range(group):
            right = rng.random() < right_share
            total_name = f"total_{rng.randrange(10**9)}"
            crash = not right and rng.randrange(CRASH_EVERY) == 0
            mapped = "v // (n - n)" if crash else f"{factor} * v + {shift}"
            program = (
                f"{READS[0] if crash else rng.choice(READS)}{total_name} = {0 if right else 1}\n"
                f"for v in values:\n    if v % {divisor} == {remainder}:\n"
                f"        {total_name} += {mapped}\nprint({total_name})\n"
            )
            made["responses"].append((index, program, right))
    return made


if __name__ == "__main__":
    command(Options, main)
