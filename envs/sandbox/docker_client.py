"""Talking to a Docker engine: is it there, what of ours runs on it, and what has lost its owner.

Every container of ours carries its owner in its labels. Standard input ends with the owner and the
worker with it, so leftovers are rare; the labels find those that a crash of the engine left.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.sandbox.base import SandboxError
from envs.sandbox.image import CAGE, image_tag
from envs.sandbox.inside.confinement import STDIO, STDIO_OPTIONS
from envs.sandbox.inside.kernel import STACK_BYTES
from envs.sandbox.python_runtime import DEVICES
from envs.sandbox.seccomp import container_profile

if TYPE_CHECKING:
    from docker import DockerClient

LABEL = "spo-bench"
ANSWER_S = 20.0  # one that is dead refuses at once; a busy one was seen to take seconds
CREATED_S = 600.0  # by far more than lies between creating and starting a container
BUILD = "build it with `make sandbox-image`"


class EngineAway(SandboxError):
    """No engine answers, now: one that is being restarted will."""


def connect(timeout_s: float = 60.0) -> DockerClient:
    """A client of the engine at DOCKER_HOST or the default socket.

    Raises EngineAway where none answers.
    """
    import docker
    from docker.errors import DockerException

    try:
        return docker.from_env(timeout=timeout_s)
    except DockerException as error:
        where = os.environ.get("DOCKER_HOST") or "the default socket"
        raise EngineAway(
            f"no Docker engine answers at {where} ({reason(error)}): start one, set DOCKER_HOST, "
            "or use sandbox=embedded"
        ) from error


def reason(error: BaseException) -> str:
    """The operating system's word on a failed connection, from below the client's layers."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)


def require_image(client: DockerClient) -> str:
    """The id of the workers' image; SandboxError with the command that builds it where it lacks."""
    from docker.errors import ImageNotFound

    try:
        return client.images.get(image_tag()).id
    except ImageNotFound:
        raise SandboxError(f"the image {image_tag()} is not on the engine: {BUILD}") from None


def unavailable() -> str | None:
    """Why the Docker backend cannot be used here, in one line; None if it can."""
    try:
        client = connect(ANSWER_S)
    except SandboxError as error:
        return str(error)
    try:
        require_image(client)
    except SandboxError as error:
        return str(error)
    except OSError as error:  # the client's time-outs are of this kind
        return f"the Docker engine does not answer ({reason(error)})"
    finally:
        client.close()
    return None


def start_time(pid: int) -> str | None:
    """When a process started, in clock ticks after boot (proc(5), field 22); None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is a name in parentheses that may hold blanks and parentheses itself.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]


def scope() -> str:
    """This boot and this pid namespace: within it, and only within it, a pid names a process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}"


def owner_labels(run: str) -> dict[str, str]:
    """The labels of a container that this process owns; `run` tells its sandboxes apart."""
    pid = os.getpid()
    return {
        LABEL: run,
        f"{LABEL}.scope": scope(),
        f"{LABEL}.pid": str(pid),
        f"{LABEL}.started": start_time(pid) or "",
    }


def orphaned(labels: dict[str, str]) -> bool:
    """Whether the owner is known to be dead: one in another scope cannot be looked up from here."""
    if labels.get(f"{LABEL}.scope") != scope():
        return False
    pid = labels.get(f"{LABEL}.pid", "")
    return not pid.isdigit() or start_time(int(pid)) != labels.get(f"{LABEL}.started")


def reap_orphans(client: DockerClient) -> int:
    """Remove the containers whose owners died; return how many. Other runs' are left alone.

    One that was created and, minutes later, not started has no owner any more, whoever that was:
    the engine itself removes only what has run.
    """
    found = client.api.containers(all=True, filters={"label": LABEL})
    late = time.time() - CREATED_S
    return sum(
        remove(client, container["Id"])
        for container in found
        if orphaned(container["Labels"])
        or (container["State"] == "created" and container["Created"] < late)
    )


def reap_run(client: DockerClient, run: str) -> int:
    """Remove all containers of one sandbox of this process; return how many."""
    found = client.api.containers(all=True, filters={"label": f"{LABEL}={run}"})
    return sum(remove(client, container["Id"]) for container in found)


def remove(client: DockerClient, container: str) -> bool:
    """Kill and remove a container; False if it was going or gone already."""
    from docker.errors import APIError

    try:
        client.api.remove_container(container, force=True, v=True)
    except APIError as error:
        if error.status_code in (404, 409):  # no such container; removal already in progress
            return False
        raise
    return True


def worker_options(memory_mb: int, pids: int) -> dict[str, Any]:
    """How every container of ours is confined, as `containers.create` takes it.

    Of the capabilities only those stay with which the worker changes its root, becomes another
    user and kills that user's processes. There is no writable path but the files of the standard
    streams: /dev/shm goes with the IPC mode, and the message queues' folder, which every container
    has, is covered by an empty one.
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
        },
        "devices": [f"{path}:{CAGE}{path}:rw" for path in DEVICES],
        "mem_limit": f"{memory_mb}m",
        "memswap_limit": f"{memory_mb}m",
        "pids_limit": pids,
        "oom_score_adj": 500,
        # Deep recursion is a contest habit, as is to raise the limit; a core file has no place.
        "ulimits": [
            Ulimit(name="stack", soft=STACK_BYTES, hard=-1),
            Ulimit(name="core", soft=0, hard=0),
        ],
        "cap_drop": ["ALL"],
        "cap_add": ["SYS_CHROOT", "SETUID", "SETGID", "KILL"],
        "security_opt": ["no-new-privileges", f"seccomp={container_profile()}"],
        # The default one writes all output to the host's disk.
        "log_config": {"Type": "none", "Config": {}},
    }
