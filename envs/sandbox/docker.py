"""The Docker backend: one long-lived, locked-down container per worker, reached over its stdin.

A container takes some 400 ms to start and a test in it 2 ms. Hence the fork server inside and the
pool outside, which both backends share. This module reads and writes a worker in a container;
`docker_client.py` says how it is confined.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from envs.readable import readable
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
OWN_MB = 256  # of a container's memory: the worker, and what a test uses beyond its limit


class Demultiplexer:
    """Splits the stream of an attached container, in any pieces, into stdout and stderr."""

    def __init__(self) -> None:
        self.stderr = b""  # its tail
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Add received bytes; return the part of stdout that is now complete, maybe b""."""
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
        self._launch_signal: socket.socket | None = None  # readable when the launch is over

    def start(self) -> None:
        """Request a container and return; `receive` takes it when it has started."""
        # The old signal closes last: another descriptor of its number would look registered.
        before, (self._launch_signal, other_end) = self._launch_signal, socket.socketpair()
        if before is not None:
            before.close()
        self._launch = self._launcher.take()
        self._launch.add_done_callback(lambda _: other_end.close())

    def started(self) -> bool:
        """Return whether the container has started."""
        return self._container is not None

    @property
    def container(self) -> str:
        """The id of the container that this worker runs in."""
        assert self._container is not None, "the container has not started"
        return self._container.id

    def fileno(self) -> int:
        """Return the attached socket's descriptor, or one that tells the end of the launch."""
        readable = self._container.socket if self._container else self._launch_signal
        assert readable is not None, "the worker was not started"
        return readable.fileno()

    def send(self, data: memoryview) -> int:
        """Write to the worker's stdin; see WorkerHandle."""
        if self._container is None:
            return 0
        try:
            return self._container.socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self) -> bytes | None:
        """Read from the worker's stdout; see WorkerHandle. Its stderr is kept for the log.

        Raises SandboxError if the engine refuses the container or does not come back.
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
        if self._launch is None or not self._launch.done():
            return
        container = self._launch.result()
        if container.ended():  # one started ahead may have ended with its engine
            self._launcher.discard(self._launch)
            self.start()
        else:
            self._container = container

    def kill(self) -> None:
        """Disconnect the worker and remove its container in the background."""
        if self._launch is not None:
            self._launcher.discard(self._launch)
            self._launch = None
        if self._launch_signal is not None:
            self._launch_signal.close()

    def worn_out(self) -> bool:
        """Return True after `max_jobs` jobs, which bounds any leak."""
        self._jobs_left -= 1
        return self._jobs_left < 0

    def cause_of_death(self) -> str:
        """Return the tail of the worker's stderr."""
        return readable(self._streams.stderr.decode("utf-8", "replace").strip())


class DockerSandbox(Pool):
    """A pool of workers, each in its own container on the engine at DOCKER_HOST.

    `workers` of 0 means a worker for each core.
    `memory_mb` bounds a whole container: the test with all its processes, its input and output,
    and the worker. It is raised for jobs that may take more. Raises SandboxError at once where no
    engine answers or the image is missing. An engine that dies later is awaited for `patience_s`
    seconds.
    """

    def __init__(
        self,
        workers: int = 0,
        *,
        memory_mb: int = 2048,
        pids: int = 384,
        max_jobs: int = 1000,
        patience_s: float = 60.0,
    ) -> None:
        workers = workers or default_workers()
        client = connect()
        require_image(client)
        reap_orphans(client)
        strength = describe_strength(client)
        client.close()
        self._launcher = Launcher(workers, memory_mb, pids, patience_s)
        self.run_id = self._launcher.run_id  # the value of the label on this sandbox's containers
        super().__init__(
            lambda: ContainerWorker(self._launcher, max_jobs),
            workers,
            name="docker",
            strength=strength,
        )

    def prepare_for(self, jobs: Sequence[Job]) -> None:
        """Make containers large enough for the limits of these jobs."""
        needed_mb = max(map(container_mb, jobs), default=0)
        if needed_mb > self._launcher.memory_mb:
            self._launcher.enlarge(needed_mb)
            for worker in list(self._connections):
                self._remove(worker)

    def close(self) -> None:
        """End all workers and remove their containers. Safe to call twice."""
        super().close()
        self._launcher.close()


def container_mb(job: Job) -> int:
    """Return the memory with which a test in a container reaches its own limits first."""
    limits, longest = job.limits, max(map(len, job.inputs), default=0)
    files_mb = 2 * limits.output_mb + (4 * longest >> 20)  # up to four bytes for each character
    return limits.memory_mb + files_mb + OWN_MB


def describe_strength(client: DockerClient) -> str:
    """Return how programs are confined, and which limits this engine cannot enforce."""
    info = client.info()
    missing = [limit for limit in ("MemoryLimit", "PidsLimit") if not info.get(limit)]
    strength = (
        f"Docker {info['ServerVersion']}: a container without network, capabilities or writable "
        "paths, a seccomp allowlist, memory and pids limits"
    )
    return strength + (f"; not enforced by this engine: {', '.join(missing)}" if missing else "")
