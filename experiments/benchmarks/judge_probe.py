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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from envs import Judge, Problem, Submission, Test
from envs.sandbox.base import Sandbox
from envs.sandbox.docker import DockerSandbox, unavailable
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


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
        self, sandbox: Sandbox, cpu_s: Callable[[], float], workloads: list[dict[str, Any]]
    ) -> None:
        self._cpu_s, self._passes = cpu_s, 0
        self._workloads = {
            workload["name"]: (Judge(sandbox), list(_problems(workload)), workload["responses"])
            for workload in workloads
        }

    def measure(self, name: str) -> dict[str, float]:
        """Cost of a pass. Raises RuntimeError for an unexpected verdict."""
        judge, problems, responses = self._workloads[name]
        self._passes += 1  # makes the programs new to the judge's cache
        submissions = [
            Submission(problems[index], f"{program}\n# {self._passes}")
            for index, program, _ in responses
        ]
        cpu_s, start = self._cpu_s(), time.perf_counter()
        judgements = judge.judge(submissions)
        cost = {"wall_s": time.perf_counter() - start, "cpu_s": self._cpu_s() - cpu_s}
        for judgement, (_, program, right) in zip(judgements, responses, strict=True):
            if (judgement.verdict == "ACCEPTED") is not right:
                raise RuntimeError(f"{judgement.verdict}, {judgement.detail}: {program}")
        tests = sum(judgement.run for judgement in judgements)
        return {"programs": len(submissions), "tests": tests, **cost}


def _problems(workload: dict[str, Any]) -> Iterator[Problem]:
    for number, pairs in enumerate(workload["problems"]):
        tests = tuple(Test(*pair) for pair in pairs)
        yield Problem(f"{workload['name']}/{number}", "", (), tests)


def main() -> None:
    """Measure until stdin ends."""
    workloads, docker = json.loads(sys.stdin.readline()), sys.argv[1] == "docker"
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
