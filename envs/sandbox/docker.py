"""The Docker backend: one long-lived, locked-down container per worker, reached over its stdin.

A container takes some 400 ms to start and a test in it 2 ms. Hence the fork server inside and the
pool outside, which both backends share. Containers start and end on threads, which stalls no other
worker. An engine that dies takes all its containers along; starting is then retried with growing
pauses.

Every worker container carries its owner in its labels. Its standard input ends with the owner, and
the worker with it, so leftovers are rare. The labels find those that a crash of the engine left.

`python -m envs.sandbox.docker` builds the image from this environment's own Python and numpy. It
needs no registry, no network and no root.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.command_line import quiet_when_unread, take_no_arguments
from envs.messages import readable
from envs.sandbox import inside
from envs.sandbox.base import Job, SandboxError
from envs.sandbox.inside.confinement import FOLDER, FOLDER_OPTIONS, STDIO, STDIO_OPTIONS
from envs.sandbox.inside.framing import STDERR_TAIL
from envs.sandbox.inside.kernel import STACK_BYTES
from envs.sandbox.pool import Pool, Splitter, WorkerHandle, default_workers
from envs.sandbox.python_runtime import (
    CAGE,
    DEVICES,
    ENVIRONMENT,
    PACKAGES_FOLDER,
    REPOSITORY,
    base_python,
    image_tag,
    worker_environment,
    write_layer,
)
from envs.sandbox.seccomp import child_filter, container_profile

if TYPE_CHECKING:
    from docker import DockerClient

log = logging.getLogger(__name__)

LABEL = "spo-bench"
OWNER = f"{LABEL}.owner"
ANSWER_S = 20  # a dead engine refuses at once; a busy one was seen to take seconds
CREATED_S = 600.0  # far more than the time between creating and starting a container
BUILD = "build it with `make sandbox-image`"
# RLIMIT_NPROC counts a user's processes over all containers of a host, so each gets its own user.
CHILD_USERS = range(1 << 20, 1 << 30)
REFUSALS = 3  # an engine that answers, but refuses, seldom accepts later
STREAM_HEADER = struct.Struct(">BxxxL")  # stream, length: the engine's framing of attached output
STDOUT = 1
OWN_MB = 256  # of a container's memory: the worker, and what a test uses beyond its limit
MAX_JOBS = 10_000  # of a container, which bounds any leak


class EngineAway(SandboxError):
    """No engine answers now; one that is being restarted will."""


def connect(timeout_s: int = 60) -> DockerClient:
    """Return a client of the engine at DOCKER_HOST or the default socket.

    Raises EngineAway where none answers.
    """
    import docker
    from docker.errors import DockerException

    try:
        return docker.from_env(timeout=timeout_s)
    except DockerException as error:
        where = os.environ.get("DOCKER_HOST") or "the default socket"
        raise EngineAway(
            f"no Docker engine answers at {where} ({failure_reason(error)}): start one, set "
            "DOCKER_HOST, or use sandbox=embedded"
        ) from error


def failure_reason(error: BaseException) -> str:
    """Return the operating system's message for a failed connection, from below the client."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)


def require_image(client: DockerClient) -> str:
    """Return the id of the workers' image. Raises SandboxError with the command that builds it."""
    from docker.errors import ImageNotFound

    try:
        image = client.images.get(image_tag())
    except ImageNotFound:
        raise SandboxError(f"the image {image_tag()} is not on the engine: {BUILD}") from None
    assert image.id is not None
    return image.id


def unavailable() -> str | None:
    """Return why the Docker backend cannot be used here, in one line; None if it can."""
    try:
        client = connect(ANSWER_S)
        try:
            require_image(client)
        finally:
            client.close()
    except SandboxError as error:
        return str(error)
    except OSError as error:  # the client's time-outs are of this kind
        return f"the Docker engine does not answer ({failure_reason(error)})"
    return None


# ---- ownership ----


def owner(pid: int | None = None) -> str:
    """Return who a process is: this boot and PID namespace, its number, and when it started.

    Only within a boot and a namespace a number names a process. A process that has ended has no
    start (proc(5), field 22, in clock ticks).
    """
    pid = pid or os.getpid()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = ""
    try:
        # The second field is a name in parentheses that may hold blanks and parentheses itself.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        started = "" if state in "ZX" else fields[18]
    except OSError:
        pass
    return f"{boot} {os.readlink('/proc/self/ns/pid')} {pid} {started}"


def orphaned(known: str) -> bool:
    """Return whether an owner is known to be dead; another scope cannot be looked up here."""
    boot, namespace, pid, _ = known.split(" ")
    now = owner(int(pid))
    return now.split(" ")[:2] == [boot, namespace] and now != known


def reap_orphans(client: DockerClient) -> int:
    """Remove the containers whose owners died; return how many. Those of live owners stay.

    A container that was created, but not started minutes later, has lost its owner too. The engine
    itself removes only containers that have run.
    """
    containers = client.api.containers(all=True, filters={"label": OWNER})
    latest = time.time() - CREATED_S
    return sum(
        remove(client, container["Id"])
        for container in containers
        if orphaned(container["Labels"][OWNER])
        or (container["State"] == "created" and container["Created"] < latest)
    )


def remove(client: DockerClient, container: str) -> bool:
    """Kill and remove a container; return False if that is done or under way already."""
    from docker.errors import APIError

    try:
        client.api.remove_container(container, force=True, v=True)
    except APIError as error:
        if error.status_code in (404, 409):  # no such container; removal already in progress
            return False
        raise
    return True


# ---- confinement ----


def worker_options(memory_mb: int, pids: int = 384) -> dict[str, Any]:
    """Return how every worker container is confined, as arguments of `containers.create`.

    It keeps only the capabilities with which the worker changes its root, becomes another user and
    kills that user's processes. The files of the standard streams, and a small folder for programs
    that use files, are the only writable paths. The IPC mode removes /dev/shm, and an empty folder
    covers that of the message queues, which every container has.
    """
    from docker.types import Ulimit

    return {
        "network_mode": "none",
        "ipc_mode": "none",
        "hostname": "sandbox",
        "read_only": True,
        "tmpfs": {
            "/dev/mqueue": "ro,size=4k,mode=555",
            CAGE + STDIO: f"rw,noexec,nosuid,nodev,noatime,{STDIO_OPTIONS}",
            CAGE + FOLDER: f"rw,noexec,nosuid,nodev,noatime,mode=755,{FOLDER_OPTIONS}",
        },
        "devices": [f"{path}:{CAGE}{path}:rw" for path in DEVICES],
        "mem_limit": f"{memory_mb}m",
        "memswap_limit": f"{memory_mb}m",
        "pids_limit": pids,
        "oom_score_adj": 500,
        # Contest programs recurse deeply and raise the limit; core files are not wanted.
        "ulimits": [
            Ulimit(name="stack", soft=STACK_BYTES, hard=-1),
            Ulimit(name="core", soft=0, hard=0),
        ],
        "cap_drop": ["ALL"],
        "cap_add": ["SYS_CHROOT", "SETUID", "SETGID", "KILL"],
        "security_opt": ["no-new-privileges", f"seccomp={container_profile()}"],
        # The default driver writes all output to the host's disk.
        "log_config": {"Type": "none", "Config": {}},
    }


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

    def __init__(self, workers: int, memory_mb: int, patience_s: float) -> None:
        self.run_id = secrets.token_hex(4)
        self.memory_mb, self.patience_s = memory_mb, patience_s
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
            own = {"label": f"{LABEL}={self.run_id}"}
            for container in client.api.containers(all=True, filters=own):
                remove(client, container["Id"])
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
                **worker_options(self.memory_mb),
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
    """One worker in one container; replaced after MAX_JOBS jobs."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher, self._jobs_left = launcher, MAX_JOBS
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
        """Return True after MAX_JOBS jobs."""
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
        self, workers: int = 0, *, memory_mb: int = 2048, patience_s: float = 60.0
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
        self._launcher = Launcher(workers, memory_mb, patience_s)
        self.run_id = self._launcher.run_id  # the value of the label on this sandbox's containers
        super().__init__(
            lambda: ContainerWorker(self._launcher),
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


# ---- the image ----


def build() -> str:
    """Build and tag the image; return the tag. Raises SandboxError where no engine answers."""
    client = connect(timeout_s=300)
    tag = image_tag()
    with tempfile.TemporaryDirectory(prefix="spo-bench-image-") as scratch:
        archive = write_layer(Path(scratch))
        with archive.open("rb") as file:
            client.api.import_image(src=file, repository=REPOSITORY, tag=tag.partition(":")[2])
    client.images.get(tag)
    client.close()
    return tag


def main() -> None:
    """Build the image and print its tag."""
    from docker.errors import DockerException

    take_no_arguments(__doc__, sys.argv[1:])
    start = time.monotonic()
    try:
        tag = build()
    except (SandboxError, DockerException, OSError) as error:
        sys.exit(f"image not built: {error}")
    print(f"{tag} built in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    with quiet_when_unread():
        main()
