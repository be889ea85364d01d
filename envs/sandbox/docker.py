"""The Docker backend: one long-lived, locked-down container per worker, reached over its stdin.

A container takes some 400 ms to start and a test in it 2 ms. Hence the fork server inside and the
pool outside, which both backends share. Containers start and end on threads, which stalls no other
worker. An engine that dies takes all its containers along; starting is then retried with growing
pauses. `engine.py` says how a container is confined.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envs.messages import readable
from envs.sandbox import inside
from envs.sandbox.base import Job, SandboxError
from envs.sandbox.engine import (
    ANSWER_S,
    LABEL,
    OWNER,
    EngineAway,
    connect,
    owner,
    reap_orphans,
    reap_run,
    remove,
    require_image,
    unavailable,
    worker_options,
)
from envs.sandbox.inside.framing import STDERR_TAIL
from envs.sandbox.pool import Pool, Splitter, WorkerHandle, default_workers
from envs.sandbox.python_runtime import (
    CAGE,
    ENVIRONMENT,
    PACKAGES_FOLDER,
    base_python,
    worker_environment,
)
from envs.sandbox.seccomp import child_filter

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["DockerSandbox", "unavailable"]

log = logging.getLogger(__name__)

# RLIMIT_NPROC counts a user's processes over all containers of a host, so each gets its own user.
CHILD_USERS = range(1 << 20, 1 << 30)
REFUSALS = 3  # an engine that answers, but refuses, seldom accepts later
STREAM_HEADER = struct.Struct(">BxxxL")  # stream, length: the engine's framing of attached output
STDOUT = 1
OWN_MB = 256  # of a container's memory: the worker, and what a test uses beyond its limit


def worker_command() -> list[str]:
    """Return the command of a new container; it holds the fork server, so no image goes stale."""
    confinement = {
        "user": secrets.choice(CHILD_USERS),
        "seccomp": child_filter().hex(),
        "seccomp_files": child_filter(changing=True).hex(),
    }
    config = {
        "form": "container",
        "cage": CAGE,
        "confinement": confinement,
        "packages": PACKAGES_FOLDER,
        "environment": ENVIRONMENT,
    }
    return [base_python(), *inside.FLAGS, "-c", inside.source(), json.dumps(config)]


def attach(client: DockerClient, container: str) -> socket.socket:
    """Return a non-blocking socket to a container's stdin, stdout and stderr.

    Raises SandboxError on a TLS connection.
    """
    raw = client.api.attach_socket(
        container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    )
    original = getattr(raw, "_sock", None)
    # TLS buffers decrypted bytes that a selector does not see.
    if not isinstance(original, socket.socket) or isinstance(original, ssl.SSLSocket):
        raise SandboxError("the Docker sandbox needs an engine on a unix or plain TCP socket")
    # The original closes when the last of several objects that share it is collected; the copy
    # closes explicitly.
    attached = original.dup()
    raw._response.close()
    attached.setblocking(False)
    return attached


@dataclass(frozen=True, slots=True)
class Container:
    """A started worker container and the non-blocking socket attached to it."""

    client: DockerClient
    id: str
    socket: socket.socket

    def remove(self) -> None:
        """Kill and remove it. Containers of a dead engine are gone too, or are reaped later."""
        from docker.errors import DockerException

        try:
            remove(self.client, self.id)
        except (DockerException, OSError) as error:
            log.debug("container %s not removed now: %s", self.id[:12], error)
        finally:
            self.client.close()


class Launcher:
    """Starts and removes the containers of one sandbox, on threads.

    An engine that does not answer is retried for `patience_s` seconds.
    """

    def __init__(self, workers: int, memory_mb: int, pids: int, patience_s: float) -> None:
        self.run_id = secrets.token_hex(4)
        self.memory_mb, self.pids, self.patience_s = memory_mb, pids, patience_s
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(min(workers + 1, 8), f"containers-{self.run_id}")

    def launch(self) -> Future[Container]:
        """Return a container that is starting."""
        return self._threads.submit(self._launch_patiently)

    def discard(self, launch: Future[Container]) -> None:
        """End a container at once, or as soon as it has started, and remove it on a thread."""
        launch.cancel()
        launch.add_done_callback(self._end)

    def close(self) -> None:
        """Wait for all removals, and reap any containers that are left.

        If the engine is dead or locked up, the next start finds leftovers by their labels.
        """
        from docker.errors import DockerException

        self._closing.set()
        self._threads.shutdown(wait=True)
        try:
            client = connect(ANSWER_S)
        except EngineAway:
            return
        try:
            reap_run(client, self.run_id)
        except (DockerException, OSError) as error:
            log.warning("containers of %s may be left on the engine: %s", self.run_id, error)
        finally:
            client.close()

    def _end(self, launch: Future[Container]) -> None:
        if launch.cancelled() or launch.exception():
            return
        container = launch.result()
        container.socket.close()  # which ends the worker's stdin and so the worker
        if self._closing.is_set():  # the threads accept nothing new
            container.remove()
        else:
            self._threads.submit(container.remove)

    def _launch_patiently(self) -> Container:
        from docker.errors import APIError, DockerException

        deadline, pause, refusals = time.monotonic() + self.patience_s, 0.1, 0
        last: Exception
        while True:
            try:
                return self._launch()
            except APIError as error:
                refusals += 1
                if refusals == REFUSALS:
                    raise SandboxError(f"the engine cannot start a container: {error}") from error
                last = error
            except (EngineAway, DockerException, OSError) as error:
                last = error
            if time.monotonic() + pause > deadline:
                raise SandboxError(
                    f"the Docker engine did not answer for {self.patience_s:.0f} s: start it again "
                    f"and resume the run ({last})"
                ) from last
            log.warning("no container yet, trying again in %.1f s: %s", pause, last)
            if self._closing.wait(pause):
                raise SandboxError("the sandbox was closed while it was starting") from last
            pause = min(2 * pause, 5.0)

    def _launch(self) -> Container:
        client, container_id = connect(), ""
        try:
            container = client.containers.create(
                require_image(client),
                worker_command(),
                stdin_open=True,  # the engine closes it when the attached client is gone
                auto_remove=True,
                name=f"{LABEL}-{self.run_id}-{secrets.token_hex(3)}",
                environment=worker_environment(),
                labels={LABEL: self.run_id, OWNER: owner()},
                **worker_options(self.memory_mb, self.pids),
            )
            assert container.id is not None
            container_id = container.id
            # Before the start, so that no byte of the worker's output is missed.
            attached = attach(client, container_id)
            container.start()
        except BaseException:
            if container_id:
                with contextlib.suppress(Exception):
                    remove(client, container_id)
            client.close()
            raise
        return Container(client, container_id, attached)


class ContainerWorker(WorkerHandle):
    """One worker in one container; replaced after `max_jobs` jobs."""

    def __init__(self, launcher: Launcher, max_jobs: int) -> None:
        self._launcher, self._jobs_left = launcher, max_jobs
        self._streams = Splitter(STREAM_HEADER)  # of stdout and stderr in one
        self._stderr = b""  # its tail
        self._launch: Future[Container] | None = None
        self._launch_signal: socket.socket | None = None  # readable when the launch is over
        self.container = ""  # its id, once it has started

    def start(self) -> None:
        """Request a container and return; `receive` takes it when it has started."""
        self._launch_signal, other_end = socket.socketpair()
        self._launch = self._launcher.launch()
        self._launch.add_done_callback(lambda _: other_end.close())

    def fileno(self) -> int:
        """Return the attached socket's descriptor, or one that tells the end of the launch."""
        if self.socket is None and self._launch_signal is not None:
            return self._launch_signal.fileno()
        return super().fileno()

    def receive(self) -> bytes | None:
        """Read from the worker's stdout; see WorkerHandle. Its stderr is kept for the log.

        Raises SandboxError if the engine refuses the container or does not come back.
        """
        if self.socket is None:
            if self._launch is not None and self._launch.done():
                container = self._launch.result()
                self.container, self.socket = container.id, container.socket
            return None
        if not (data := super().receive()):
            return data
        stdout = b""
        for stream, piece in self._streams.feed(data):
            if stream == STDOUT:
                stdout += piece
            else:
                self._stderr = (self._stderr + piece)[-STDERR_TAIL:]
        return stdout or None

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
        return readable(self._stderr.decode("utf-8", "replace").strip())


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
        max_jobs: int = 10_000,
        patience_s: float = 60.0,
    ) -> None:
        workers = workers or default_workers()
        client = connect()
        require_image(client)
        reap_orphans(client)
        info = client.info()
        client.close()
        missing = [limit for limit in ("MemoryLimit", "PidsLimit") if not info.get(limit)]
        strength = (
            f"Docker {info['ServerVersion']}: a container without network, capabilities or "
            "writable paths, a seccomp allowlist, memory and pids limits"
        )
        if missing:
            strength += f"; not enforced by this engine: {', '.join(missing)}"
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
            self._launcher.memory_mb = needed_mb
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
