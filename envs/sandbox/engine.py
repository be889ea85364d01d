"""The Docker engine: connection, the workers' image, options of their containers, leftovers.

Every worker container carries its owner in its labels. Its standard input ends with the owner, and
the worker with it, so leftovers are rare. The labels find those that a crash of the engine left.

`python -m envs.sandbox.engine` builds the image from this environment's own Python and numpy. It
needs no registry, no network and no root. The files that the embedded sandbox would show are copied
into a tree, compiled, and imported as an image of one layer.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.command_line import quiet_when_unread, take_no_arguments
from envs.sandbox.base import SandboxError
from envs.sandbox.inside.confinement import (
    FOLDER,
    FOLDER_OPTIONS,
    STDIO,
    STDIO_OPTIONS,
)
from envs.sandbox.inside.kernel import STACK_BYTES
from envs.sandbox.python_runtime import CAGE, DEVICES, REPOSITORY, image_tag, write_layer
from envs.sandbox.seccomp import container_profile

if TYPE_CHECKING:
    from docker import DockerClient

LABEL = "spo-bench"
OWNER = f"{LABEL}.owner"
ANSWER_S = 20  # a dead engine refuses at once; a busy one was seen to take seconds
CREATED_S = 600.0  # far more than the time between creating and starting a container
BUILD = "build it with `make sandbox-image`"


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


def reap_run(client: DockerClient, run_id: str) -> int:
    """Remove all containers of one sandbox of this process; return how many."""
    containers = client.api.containers(all=True, filters={"label": f"{LABEL}={run_id}"})
    return sum(remove(client, container["Id"]) for container in containers)


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


def worker_options(memory_mb: int, pids: int) -> dict[str, Any]:
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
