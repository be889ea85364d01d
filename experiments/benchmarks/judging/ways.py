"""The ways of running a program on an input that the judge's benchmark compares.

Each way runs jobs and returns the outputs, so that the benchmark can check that all did the same
work. `close` ends what the way has started.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from envs.sandbox.base import Job, Sandbox
from envs.sandbox.docker import Demultiplexer, DockerSandbox
from envs.sandbox.docker_client import connect, owner_labels, remove, worker_options
from envs.sandbox.embedded import EmbeddedSandbox
from envs.sandbox.image import image_tag
from envs.sandbox.python_runtime import base_python

Outputs = list[list[str]]  # of each job, of each input


class Way(ABC):
    """One way, with a number of workers that it may keep busy."""

    # Passes over each workload per measurement: more for the fast, since a CPU clock ticks every
    # 10 ms.
    repeats: ClassVar = {"small": 1, "10 MB": 5}

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Outputs:
        """Run all jobs on all their inputs."""

    @abstractmethod
    def close(self) -> None:
        """End what was started."""


class SandboxWay(Way):
    """One of our backends."""

    repeats: ClassVar = {"small": 5, "10 MB": 5}

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def run(self, jobs: Sequence[Job]) -> Outputs:
        """Through the pool, in whatever order it chooses."""
        done = dict(self.sandbox.run(jobs, lambda *_: True))
        return [[run.stdout.decode() for run in done[index]] for index in range(len(jobs))]

    def close(self) -> None:
        """Close the sandbox."""
        self.sandbox.close()


class ThreadedWay(Way):
    """A function per test, called on as many threads as there are workers."""

    def __init__(self, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers)

    @abstractmethod
    def run_one(self, program: str, text: str) -> str:
        """Run one program on one input; return its output."""

    def run(self, jobs: Sequence[Job]) -> Outputs:
        """Each test is a task of its own."""
        pending = [
            [self.threads.submit(self.run_one, job.program, text) for text in job.inputs]
            for job in jobs
        ]
        return [[future.result() for future in futures] for futures in pending]

    def close(self) -> None:
        """End the threads."""
        self.threads.shutdown()


class SubprocessWay(ThreadedWay):
    """A new interpreter per test on the host: what most reward functions do; nothing is held in."""

    def run_one(self, program: str, text: str) -> str:
        """One interpreter, one program, one input."""
        command = [sys.executable, "-c", program]
        return subprocess.run(command, input=text, capture_output=True, text=True).stdout


class ExecWay(ThreadedWay):
    """`docker exec` of a new interpreter per test in a container that stays."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.client = connect()
        options = worker_options(memory_mb=2048, pids=256) | {"labels": owner_labels("bench")}
        idle = [base_python(), "-c", "import signal; signal.pause()"]
        self.container = self.client.containers.run(image_tag(), idle, detach=True, **options)

    def run_one(self, program: str, text: str) -> str:
        """Through the engine's API, which costs less than its command line does."""
        api = self.client.api
        command = [base_python(), "-c", program]
        execution = api.exec_create(self.container.id, command, stdin=True)["Id"]
        attached = api.exec_start(execution, socket=True)._sock
        attached.sendall(text.encode())
        attached.shutdown(socket.SHUT_WR)
        streams, output = Demultiplexer(), b""
        while data := attached.recv(1 << 16):
            output += streams.feed(data)
        return output.decode()

    def close(self) -> None:
        """Remove the container."""
        super().close()
        remove(self.client, self.container.id)
        self.client.close()


class FloorWay(Way):
    """fork + exec of compiled code in a warm interpreter, without isolation: see `floor.py`."""

    repeats: ClassVar = {"small": 5, "10 MB": 5}

    def __init__(self, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers)
        command = [sys.executable, "-I", "-S", Path(__file__).with_name("floor.py")]
        self.servers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(workers)
        ]

    def run(self, jobs: Sequence[Job]) -> Outputs:
        """The jobs dealt out in turn, one share to each server."""
        shares = [jobs[index :: len(self.servers)] for index in range(len(self.servers))]
        results = list(self.threads.map(self.run_share, self.servers, shares))
        return [results[i % len(results)][i // len(results)] for i in range(len(jobs))]

    @staticmethod
    def run_share(server: subprocess.Popen, jobs: Sequence[Job]) -> Outputs:
        """One pass on one server."""
        work = [(job.program, [text.encode() for text in job.inputs]) for job in jobs]
        pickle.dump(work, server.stdin)
        server.stdin.flush()
        return [[output.decode() for output in outputs] for outputs in pickle.load(server.stdout)]

    def close(self) -> None:
        """End the servers by the end of their stdin."""
        self.threads.shutdown()
        for server in self.servers:
            server.communicate()


def ways(workers: int, docker: bool) -> dict[str, Way]:
    """All ways that this machine has, opened, by name."""
    opened = {"floor": FloorWay(workers), "embedded": SandboxWay(EmbeddedSandbox(workers))}
    if docker:
        opened["docker"] = SandboxWay(DockerSandbox(workers))
        opened["docker exec"] = ExecWay(workers)
    return opened | {"subprocess": SubprocessWay(workers)}
