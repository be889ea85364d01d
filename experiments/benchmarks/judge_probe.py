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
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envs import Judge, Problem, Submission, Test
from envs.sandbox.base import Sandbox
from envs.sandbox.docker import DockerSandbox, unavailable
from envs.sandbox.docker_client import LABEL, connect
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable

if TYPE_CHECKING:
    from docker import DockerClient

MAX_PASSES = 5
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SHIM = "containerd-shim"  # as the kernel truncates the name; the parent of each container
DEFAULT_HOST = "unix:///var/run/docker.sock"


class Process(NamedTuple):
    """A line of /proc. `ticks` include waited-for children."""

    pid: int
    parent: int
    name: str
    ticks: int


def processes() -> Iterator[Process]:
    """All processes that are visible from here."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            head, _, tail = (folder / "stat").read_text().rpartition(")")
            fields, name = tail.split(), head.partition("(")[2]
            yield Process(int(folder.name), int(fields[1]), name, sum(map(int, fields[11:15])))


class Reading(NamedTuple):
    """CPU seconds so far, and the containers they include.

    An ended container takes its time with it: readings with other containers cannot be compared.
    """

    cpu_s: float
    containers: frozenset[int] = frozenset()


class Meter:
    """CPU time of this process, its descendants and, with a client, the engine and our containers.

    Wall time says little on a shared machine.
    """

    def __init__(self, client: DockerClient | None) -> None:
        self._client = client
        self._daemon = None if client is None else _daemon_pid()

    def read(self) -> Reading:
        """Sum the CPU time so far."""
        containers, table = self._our_containers(), list(processes())
        engine = [process for process in table if self._is_engine(process, containers)]
        children = defaultdict(list)
        for process in table:
            children[process.parent].append(process)
        pending = [process for process in table if process.pid == os.getpid()] + engine
        ticks: dict[int, int] = {}
        while pending:
            process = pending.pop()
            if process.pid not in ticks:
                ticks[process.pid] = process.ticks
                pending += children[process.pid]
        shims = frozenset(process.pid for process in engine if process.name == SHIM)
        return Reading(sum(ticks.values()) * TICK_S, shims)

    def _our_containers(self) -> set[bytes]:
        """Ids of this process's containers: other users of the engine are not counted."""
        if self._client is None:
            return set()
        label = {"label": f"{LABEL}.pid={os.getpid()}"}
        return {each["Id"].encode() for each in self._client.api.containers(filters=label)}

    def _is_engine(self, process: Process, containers: set[bytes]) -> bool:
        if self._daemon is None:
            return False
        if process.name != SHIM:
            return process.pid == self._daemon or process.parent == self._daemon
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            return bool(containers & set(words))
        return False


def _daemon_pid() -> int | None:
    """Process id of the engine behind the local socket; None if the engine is remote."""
    kind, _, path = os.environ.get("DOCKER_HOST", DEFAULT_HOST).partition("://")
    if kind != "unix":
        return None
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]


class Probe:
    """One backend with all its workers. Each workload has a judge of its own, which stays warm."""

    def __init__(self, sandbox: Sandbox, meter: Meter, workloads: list[dict[str, Any]]) -> None:
        self._meter, self._passes = meter, 0
        self._workloads = {
            workload["name"]: (Judge(sandbox), list(_problems(workload)), workload["responses"])
            for workload in workloads
        }

    def measure(self, name: str) -> dict[str, float]:
        """Cost of a pass in which no container was replaced.

        Raises RuntimeError if containers end in every pass, or for an unexpected verdict.
        """
        for _ in range(MAX_PASSES):
            cost = self._pass(name)
            if cost is not None:
                return cost
        raise RuntimeError(f"containers ended in each of {MAX_PASSES} passes")

    def _pass(self, name: str) -> dict[str, float] | None:
        judge, problems, responses = self._workloads[name]
        self._passes += 1  # makes the programs new to the judge's cache
        submissions = [
            Submission(problems[index], f"{program}\n# {self._passes}")
            for index, program, _ in responses
        ]
        before, start = self._meter.read(), time.perf_counter()
        judgements = judge.judge(submissions)
        wall_s, after = time.perf_counter() - start, self._meter.read()
        for judgement, (_, program, right) in zip(judgements, responses, strict=True):
            if (judgement.verdict == "ACCEPTED") is not right:
                raise RuntimeError(f"{judgement.verdict}, {judgement.detail}: {program}")
        if before.containers != after.containers:
            return None
        tests = sum(judgement.run for judgement in judgements)
        cost = {"wall_s": wall_s, "cpu_s": after.cpu_s - before.cpu_s}
        return {"programs": len(submissions), "tests": tests, **cost}


def _problems(workload: dict[str, Any]) -> Iterator[Problem]:
    for number, pairs in enumerate(workload["problems"]):
        tests = tuple(Test(*pair) for pair in pairs)
        yield Problem(f"{workload['name']}/{number}", "", (), tests)


def open_backend(name: str) -> tuple[Sandbox, Meter] | str:
    """The sandbox and its meter; or the reason why this machine lacks it."""
    if name == "docker":
        return unavailable() or (DockerSandbox(), Meter(connect()))
    return form_unavailable(name) or (EmbeddedSandbox(form=name), Meter(None))


def main() -> None:
    """Measure until stdin ends."""
    workloads = json.loads(sys.stdin.readline())
    backend = open_backend(sys.argv[1])
    if isinstance(backend, str):
        print(json.dumps({"unavailable": backend}), flush=True)
        return
    sandbox, meter = backend
    with sandbox:
        probe = Probe(sandbox, meter, workloads)
        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            print(json.dumps(probe.measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
