"""Start and remove worker containers, ahead of need and off the pool's thread.

A container takes some 400 ms to start and as long to remove. Done here, on threads, that stalls no
other worker. An engine that dies takes all its containers along. Starting is then retried with
growing pauses, until the engine is back or `patience_s` has passed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import select
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envs.sandbox import inside
from envs.sandbox.base import SandboxError
from envs.sandbox.docker_client import (
    ANSWER_S,
    LABEL,
    EngineAway,
    connect,
    owner_labels,
    reap_run,
    remove,
    require_image,
    worker_options,
)
from envs.sandbox.image import CAGE
from envs.sandbox.python_runtime import (
    ENVIRONMENT,
    PACKAGES_FOLDER,
    base_python,
    worker_environment,
)
from envs.sandbox.seccomp import child_filter

if TYPE_CHECKING:
    from docker import DockerClient, models

log = logging.getLogger(__name__)

# RLIMIT_NPROC counts a user's processes over all containers of a host, so each gets its own user.
CHILD_UIDS = range(1 << 20, 1 << 30)
REFUSALS = 3  # an engine that answers, but refuses, seldom accepts later


def worker_command() -> list[str]:
    """Return the command of a new container; it holds the fork server, so no image goes stale."""
    confinement = {
        "user": secrets.choice(CHILD_UIDS),
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


def container_id(container: models.containers.Container) -> str:
    """Return the id of a container that the engine has created."""
    assert container.id is not None
    return container.id


@dataclass(frozen=True, slots=True)
class Container:
    """A started worker container and the non-blocking socket attached to it."""

    client: DockerClient
    id: str
    socket: socket.socket

    def disconnect(self) -> None:
        """Close the socket, which ends the worker's stdin and so the worker."""
        self.socket.close()

    def ended(self) -> bool:
        """Return whether the engine has hung up, because the container or the engine ended."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)  # seen even behind bytes not yet read
        return bool(poll.poll(0))

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
    """The containers of one sandbox: `workers` start at once, later ones one ahead of need.

    An engine that does not answer is retried for `patience_s` seconds.
    """

    def __init__(self, workers: int, memory_mb: int, pids: int, patience_s: float) -> None:
        self.run_id = secrets.token_hex(4)
        self.memory_mb, self.pids, self.patience_s = memory_mb, pids, patience_s
        self._labels = owner_labels(self.run_id)
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(min(workers + 1, 8), f"containers-{self.run_id}")
        self._ahead = [self._threads.submit(self._launch_patiently) for _ in range(workers)]

    def take(self) -> Future[Container]:
        """Return the next container, started or starting; start one more if it was the last."""
        launch = self._ahead.pop(0)
        if not self._ahead:
            self._ahead.append(self._threads.submit(self._launch_patiently))
        return launch

    def enlarge(self, memory_mb: int) -> None:
        """Give later containers more memory, and replace those started ahead."""
        self.memory_mb = memory_mb
        for launch in self._ahead:
            self.discard(launch)
        self._ahead = [self._threads.submit(self._launch_patiently) for _ in self._ahead]

    def discard(self, launch: Future[Container]) -> None:
        """End a container at once, or as soon as it has started, and remove it on a thread."""
        launch.cancel()
        launch.add_done_callback(self._end)

    def close(self) -> None:
        """End containers started ahead, wait for all removals, and reap any left.

        If the engine is dead or locked up, the next start finds leftovers by their labels.
        """
        from docker.errors import DockerException

        self._closing.set()
        for launch in self._ahead:
            self.discard(launch)
        self._ahead.clear()
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
        container.disconnect()
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
        client = connect()
        container = None
        try:
            container = client.containers.create(
                require_image(client),
                worker_command(),
                stdin_open=True,  # the engine closes it when the attached client is gone
                auto_remove=True,
                name=f"{LABEL}-{self.run_id}-{secrets.token_hex(3)}",
                environment=worker_environment(),
                labels=self._labels,
                **worker_options(self.memory_mb, self.pids),
            )
            # Before the start, so that no byte of the worker's output is missed.
            attached = attach(client, container_id(container))
            container.start()
        except BaseException:
            if container is not None:
                with contextlib.suppress(Exception):
                    remove(client, container_id(container))
            client.close()
            raise
        return Container(client, container_id(container), attached)
