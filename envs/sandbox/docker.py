"""The Docker backend: one long-lived, locked container per worker, spoken to over its stdin.

A container costs some 400 ms to start and a test in it 2 ms, hence the fork server inside and the
pool outside, which both backends share. Here is how a worker in a container is read and written,
and what holds it in is in `engine.py`. Expected outputs stay on this side.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from envs.sandbox.base import Job
from envs.sandbox.containers import Container, Launcher
from envs.sandbox.docker_client import connect, reap_orphans, require_image, unavailable
from envs.sandbox.inside.framing import STDERR_TAIL
from envs.sandbox.pool import Pool, WorkerHandle, default_workers

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["DockerSandbox", "unavailable"]

STREAM_HEADER = struct.Struct(">BxxxL")  # stream, length: the engine's framing of attached output
STDOUT = 1
CHUNK = 1 << 18
OWN_MB = 256  # of a container's memory, for the worker and what a test has beyond its limit


class Demultiplexer:
    """Takes apart the stream of an attached container, cut anywhere, into stdout and stderr."""

    def __init__(self) -> None:
        self.stderr = b""  # its tail
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Add received bytes; return what of stdout is now complete, which may be nothing."""
        self._buffer += data
        stdout, start = [], 0
        while len(self._buffer) - start >= STREAM_HEADER.size:
            stream, length = STREAM_HEADER.unpack_from(self._buffer, start)
            end = start + STREAM_HEADER.size + length
            if len(self._buffer) < end:
                break
            piece = bytes(self._buffer[start + STREAM_HEADER.size : end])
            if stream == STDOUT:
                stdout.append(piece)
            else:
                self.stderr = (self.stderr + piece)[-STDERR_TAIL:]
            start = end
        del self._buffer[:start]
        return b"".join(stdout)


class ContainerWorker(WorkerHandle):
    """One worker in one container; replaced after `max_jobs` jobs."""

    def __init__(self, launcher: Launcher, max_jobs: int) -> None:
        self._launcher = launcher
        self._jobs_left = max_jobs
        self._streams = Demultiplexer()
        self._launch: Future[Container] | None = None
        self._container: Container | None = None
        self._bell: socket.socket | None = None  # hung up when the launch is over

    def start(self) -> None:
        """Ask for a container and return; `receive` takes it when it is there."""
        before, (self._bell, other) = self._bell, socket.socketpair()
        if before is not None:
            before.close()
        self._launch = self._launcher.take()
        self._launch.add_done_callback(lambda _: other.close())

    def started(self) -> bool:
        """True once the container is there."""
        return self._container is not None

    @property
    def container(self) -> str:
        """The id of the container that this worker runs in."""
        return self._container.id

    def fileno(self) -> int:
        """The attached socket's descriptor; before there is one, another that becomes readable."""
        return (self._container.socket if self._container else self._bell).fileno()

    def send(self, data: memoryview) -> int:
        """Write to the worker's stdin; see WorkerHandle."""
        if self._container is None:
            return 0
        try:
            return self._container.socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self) -> bytes | None:
        """Read of the worker's stdout; see WorkerHandle. Its stderr is kept for the log.

        Raises SandboxError if the engine refuses the container or stays away.
        """
        if self._container is None:
            self._take_container()
            return None
        try:
            data = self._container.socket.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        return (self._streams.feed(data) or None) if data else b""

    def _take_container(self) -> None:
        if not self._launch.done():
            return
        container = self._launch.result()
        if container.ended():  # one that was started ahead may have gone with its engine
            self._launcher.discard(self._launch)
            self.start()
        else:
            self._container = container

    def kill(self) -> None:
        """Cut the worker off and have its container removed in the background."""
        if self._launch is not None:
            self._launcher.discard(self._launch)
            self._launch = None
        if self._bell is not None:
            self._bell.close()

    def worn_out(self) -> bool:
        """True every `max_jobs` jobs: what leaks, leaks for so long only."""
        self._jobs_left -= 1
        return self._jobs_left < 0

    def cause_of_death(self) -> str:
        """The tail of what the worker wrote to stderr."""
        return self._streams.stderr.decode("utf-8", "replace").strip()


class DockerSandbox(Pool):
    """A pool of workers, each in its own container on the engine at DOCKER_HOST.

    `workers` of 0 means a worker for each core.
    `memory_mb` bounds a whole container: the test with all its processes, its input and output,
    and the worker; where jobs may take more than that, it is raised. Raises SandboxError, at once,
    where no engine answers or the image is not there; later, an engine that dies is waited for
    `patience_s` seconds.
    """

    def __init__(
        self,
        workers: int = 0,
        *,
        memory_mb: int = 2048,
        pids: int = 256,
        max_jobs: int = 1000,
        patience_s: float = 60.0,
    ) -> None:
        workers = workers or default_workers()
        client = connect()
        require_image(client)
        reap_orphans(client)
        strength = describe(client)
        client.close()
        self._launcher = Launcher(workers, memory_mb, pids, patience_s)
        self.run_id = self._launcher.run  # the value of the label on this sandbox's containers
        super().__init__(
            lambda: ContainerWorker(self._launcher, max_jobs),
            workers,
            name="docker",
            strength=strength,
        )

    def fit(self, jobs: Sequence[Job]) -> None:
        """Have containers that are large enough for the limits of these jobs."""
        needed = max(map(container_mb, jobs), default=0)
        if needed > self._launcher.memory_mb:
            self._launcher.enlarge(needed)
            for worker in list(self._crew):
                self._dismiss(worker)

    def close(self) -> None:
        """End all workers and remove their containers; safe to call twice."""
        super().close()
        self._launcher.close()


def container_mb(job: Job) -> int:
    """What a container needs so that a test meets its own limits first."""
    limits, longest = job.limits, max(map(len, job.inputs), default=0)
    files = 2 * limits.output_mb + (4 * longest >> 20)  # up to four bytes for each character
    return limits.memory_mb + files + OWN_MB


def describe(client: DockerClient) -> str:
    """What holds a program in, and what this engine cannot enforce."""
    info = client.info()
    lacks = [what for what in ("MemoryLimit", "PidsLimit") if not info.get(what)]
    strength = (
        f"Docker {info['ServerVersion']}: a container without network, capabilities or writable "
        "paths, a seccomp allowlist, memory and pids limits"
    )
    return strength + (f"; not enforced by this engine: {', '.join(lacks)}" if lacks else "")
