"""Judge workloads with the `envs` of the checkout that this runs in, and report their cost.

    python -m experiments.benchmarks.judge_probe BACKEND

stdin: a JSON line with all workloads, then the name of a workload on each line. stdout: a JSON line
with the cost of one pass for each name. `judge.py` copies this file into other checkouts, so it
imports nothing but `envs`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs import Judge, Problem, Submission, Test
from envs.sandbox.base import Sandbox
from envs.sandbox.docker import DockerSandbox, unavailable
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable

ACCEPTED, REJECTED = "right programs accepted", "wrong programs rejected"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Workload:
    """Programs to judge, in plain data, so that all checkouts judge the same bytes."""

    name: str
    problems: list[dict[str, Any]]  # tests as (input, output) pairs, other fields of Problem
    responses: list[tuple[int, str, bool]]  # problem, program, whether it is right
    labels_hold: bool = True  # False: a data set calls the programs right or wrong


def own_cpu_s() -> float:
    """CPU seconds of this process and its descendants. Wall time says little on a busy machine."""
    ticks, children = {}, defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(folder.name))
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # waited-for children included
    total, pending = 0, [os.getpid()]
    while pending:
        process = pending.pop()
        total += ticks.get(process, 0)
        pending += children[process]
    return total * TICK_S


def machine_cpu_s() -> float:
    """CPU seconds of all processes: the engine and its containers are no descendants of ours."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, softirq = map(int, fields[1:8])
    return (user + nice + system + irq + softirq) * TICK_S


class Probe:
    """One backend with all its workers. Each workload has a judge of its own, which stays warm."""

    def __init__(
        self, sandbox: Sandbox, cpu_s: Callable[[], float], workloads: Sequence[Workload]
    ) -> None:
        self._cpu_s, self._passes = cpu_s, 0
        self._workloads = {
            workload.name: (Judge(sandbox), list(_problems(workload)), workload)
            for workload in workloads
        }

    def measure(self, name: str) -> dict[str, float]:
        """Cost of a pass.

        A verdict other than the label raises RuntimeError if the labels are known to hold, and is
        counted otherwise.
        """
        judge, problems, workload = self._workloads[name]
        self._passes += 1  # makes the programs new to the judge's cache
        submissions = [
            Submission(problems[index], f"{program}\n# {self._passes}")
            for index, program, _ in workload.responses
        ]
        cpu_s, start = self._cpu_s(), time.perf_counter()
        judgements = judge.judge(submissions)
        cost = {"wall_s": time.perf_counter() - start, "cpu_s": self._cpu_s() - cpu_s}
        accepted = [judgement.verdict == "ACCEPTED" for judgement in judgements]
        for judgement, passed, (_, program, right) in zip(
            judgements, accepted, workload.responses, strict=True
        ):
            if workload.labels_hold and passed is not right:
                raise RuntimeError(f"{judgement.verdict}, {judgement.detail}: {program}")
        tests = sum(judgement.run for judgement in judgements)
        shares = agreement(accepted, [right for *_, right in workload.responses])
        return {"programs": len(submissions), "tests": tests, **cost, **shares}


def agreement(accepted: Sequence[bool], rights: Sequence[bool]) -> dict[str, float]:
    """Numbers of right programs that were accepted, and of wrong ones that were rejected."""
    pairs = list(zip(accepted, rights, strict=True))
    return {
        ACCEPTED: float(pairs.count((True, True))),
        REJECTED: float(pairs.count((False, False))),
    }


def _problems(workload: Workload) -> Iterator[Problem]:
    for number, problem in enumerate(workload.problems):
        tests = tuple(Test(*pair) for pair in problem["tests"])
        others = {key: value for key, value in problem.items() if key != "tests"}
        yield Problem(f"{workload.name}/{number}", "", (), tests, **others)


def main() -> None:
    """Measure until stdin ends."""
    docker = sys.argv[1] == "docker"
    workloads = [Workload(**workload) for workload in json.loads(sys.stdin.readline())]
    if reason := unavailable() if docker else form_unavailable(sys.argv[1]):
        print(json.dumps({"unavailable": reason}), flush=True)
        return
    sandbox: Sandbox = DockerSandbox() if docker else EmbeddedSandbox(form=sys.argv[1])
    with sandbox:
        probe = Probe(sandbox, machine_cpu_s if docker else own_cpu_s, workloads)
        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            print(json.dumps(probe.measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
