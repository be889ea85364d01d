"""Check what this machine offers the sandbox, what is missing, and how to get it.

`python -m envs.sandbox.doctor` tries each feature for real where that is harmless: a container or
a security module may forbid what the kernel's configuration allows. Exit code 1 where no backend
works.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envs.command_line import quiet_when_unread, take_no_arguments
from envs.sandbox.base import SandboxError
from envs.sandbox.docker_client import ANSWER_S, BUILD, connect, failure_reason
from envs.sandbox.image import REPOSITORY, image_tag
from envs.sandbox.inside.confinement import CREATE_RULESET, NAMESPACES

if TYPE_CHECKING:
    from docker import DockerClient

UNSHARE = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare({NAMESPACES}):
    sys.exit(os.strerror(ctypes.get_errno()))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `remedy` says how to get a feature that is missing."""

    name: str
    passed: bool
    detail: str
    remedy: str = ""


def check_engine() -> list[Check]:
    """Check whether a Docker engine answers, and if so, its limits and its image."""
    where = os.environ.get("DOCKER_HOST") or "the default socket"
    try:
        client = connect(ANSWER_S)
        try:
            version = client.version()
            detail = f"{version['Version']}, API {version['ApiVersion']}, at {where}"
            engine = Check("Docker engine", True, detail)
            return [engine, check_engine_limits(client), check_image(client)]
        finally:
            client.close()
    except (SandboxError, OSError) as error:  # the client's time-outs are of the second kind
        remedy = "install and start Docker, or set DOCKER_HOST; as root on Debian: .ci/engine start"
        return [Check("Docker engine", False, f"none at {where} ({failure_reason(error)})", remedy)]


def check_engine_limits(client: DockerClient) -> Check:
    """Check whether the engine enforces memory and pids limits and seccomp profiles."""
    info = client.info()
    missing = [key for key in ("MemoryLimit", "PidsLimit") if not info.get(key)]
    if not any("seccomp" in option for option in info.get("SecurityOptions") or ()):
        missing.append("seccomp")
    detail = f"cgroup v{info.get('CgroupVersion', '1')}, storage {info['Driver']}"
    remedy = "give the engine the memory and pids cgroup controllers" if missing else ""
    return Check("engine's limits", not missing, ", ".join([detail, *missing]), remedy)


def check_image(client: DockerClient) -> Check:
    """Check whether the image of this checkout's recipe is on the engine, or only an older one."""
    tags = [tag for image in client.images.list(REPOSITORY) for tag in image.tags]
    if image_tag() in tags:
        old = [tag for tag in tags if tag != image_tag()]
        return Check("image", True, image_tag() + (f", and older: {', '.join(old)}" * bool(old)))
    return Check("image", False, f"stale: {', '.join(tags)}" if tags else "none", BUILD)


def check_user_namespaces() -> Check:
    """Check in a child whether this user may make the namespaces of the embedded backend."""
    child = subprocess.run([sys.executable, "-I", "-S", "-c", UNSHARE], capture_output=True)
    if child.returncode == 0:
        return Check("user namespaces", True, "allowed")
    refusal = child.stderr.decode(errors="replace").strip()
    switches = {
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "user.max_user_namespaces": ("0", "10000"),
    }
    for switch, (bad, better) in switches.items():
        path = Path("/proc/sys", *switch.split(".", 1))
        if path.exists() and path.read_text().strip() == bad:
            return Check("user namespaces", False, refusal, f"sysctl -w {switch}={better}")
    remedy = "a container's seccomp profile refuses them; see its --security-opt"
    return Check("user namespaces", False, refusal, remedy)


def check_landlock() -> Check:
    """Check which Landlock ABI the kernel has; requesting the version changes nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version > 0:
        return Check("Landlock", True, f"ABI {version}")
    remedy = "a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its lsm= list"
    return Check("Landlock", False, os.strerror(ctypes.get_errno()), remedy)


def check_seccomp() -> Check:
    """Check whether system calls can be filtered."""
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    if actions.exists() and "errno" in actions.read_text().split():
        return Check("seccomp", True, "filters")
    return Check("seccomp", False, "no filters", "a kernel with CONFIG_SECCOMP_FILTER")


def check_cgroup_memory() -> Check:
    """Check whether the memory of a group of processes can be bounded."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    if unified.exists() and "memory" in unified.read_text().split():
        return Check("cgroup memory", True, "v2")
    if Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        return Check("cgroup memory", True, "v1")
    remedy = "mount cgroups; without them a test is bounded by RLIMIT_AS per process"
    return Check("cgroup memory", False, "not mounted", remedy)


def describe_machine() -> Check:
    """Describe cores that this process may use, memory, kernel and Python."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    detail = f"{cores} cores, {gib:.0f} GiB, Linux {platform.release()}"
    return Check("machine", True, f"{detail}, Python {platform.python_version()}")


def run_checks() -> list[Check]:
    """Return all checks, in the order in which they are shown."""
    kernel = check_user_namespaces(), check_landlock(), check_seccomp(), check_cgroup_memory()
    return [describe_machine(), *check_engine(), *kernel]


def auto_backend(checks: list[Check]) -> tuple[str, str]:
    """Return (the backend that `sandbox=auto` takes, how strong it is); "" for no backend."""
    passed = {check.name for check in checks if check.passed}
    if {"Docker engine", "image"} <= passed:
        return "docker", "containers; the memory of a test with all its processes is bounded"
    if {"user namespaces", "seccomp"} <= passed:
        return "embedded", "namespaces and seccomp; memory is bounded per process only"
    if {"Landlock", "seccomp"} <= passed:
        return "embedded", "the weaker form, without namespaces: Landlock, seccomp and rlimits"
    return "", "nothing here can confine programs, so judging does not start"


def main() -> None:
    """Print the checks and the backend that follows from them."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    take_no_arguments(__doc__, sys.argv[1:])
    checks = run_checks()
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "how to get it"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]yes[/green]" if check.passed else "[red]no[/red]"
        table.add_row(mark, check.name, escape(check.detail), escape(check.remedy))
    backend, strength = auto_backend(checks)
    console = Console()
    console.print(table)
    console.print(f"\nsandbox=auto takes [bold]{backend or 'nothing'}[/bold]: {strength}")
    sys.exit(not backend)


if __name__ == "__main__":
    with quiet_when_unread():
        main()
