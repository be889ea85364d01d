"""What this machine can do for the sandbox, what is missing, and how to get it.

`python -m envs.sandbox.doctor` tries each thing for real where that is harmless, because a kernel's
configuration and what a container or a security module leaves of it are two things. Exit code 1
where no backend holds.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envs.sandbox.base import SandboxError
from envs.sandbox.docker_client import ANSWER_S, BUILD, connect, reason
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
class Finding:
    """One thing that was looked at; `remedy` says how to get it where it is missing."""

    name: str
    good: bool
    found: str
    remedy: str = ""


def engine_findings() -> list[Finding]:
    """Whether a Docker engine answers, and if so, what it enforces and whether it has the image."""
    where = os.environ.get("DOCKER_HOST") or "the default socket"
    try:
        client = connect(ANSWER_S)
        try:
            version = client.version()
            found = f"{version['Version']}, API {version['ApiVersion']}, at {where}"
            engine = Finding("Docker engine", True, found)
            return [engine, engine_limits(client), image_finding(client)]
        finally:
            client.close()
    except (SandboxError, OSError) as error:  # the client's time-outs are of the second kind
        remedy = "install and start Docker, or set DOCKER_HOST; as root on Debian: .ci/engine start"
        return [Finding("Docker engine", False, f"none at {where} ({reason(error)})", remedy)]


def engine_limits(client: DockerClient) -> Finding:
    """Whether the engine enforces memory and pids limits and seccomp profiles."""
    info = client.info()
    lacks = [key for key in ("MemoryLimit", "PidsLimit") if not info.get(key)]
    if not any("seccomp" in option for option in info.get("SecurityOptions") or ()):
        lacks.append("seccomp")
    found = f"cgroup v{info.get('CgroupVersion', '1')}, storage {info['Driver']}"
    remedy = "give the engine the memory and pids cgroup controllers" if lacks else ""
    return Finding("engine's limits", not lacks, ", ".join([found, *lacks]), remedy)


def image_finding(client: DockerClient) -> Finding:
    """Whether the image of this checkout's recipe is on the engine, or only an older one."""
    tags = [tag for image in client.images.list(REPOSITORY) for tag in image.tags]
    if image_tag() in tags:
        old = [tag for tag in tags if tag != image_tag()]
        return Finding("image", True, image_tag() + (f", and older: {', '.join(old)}" * bool(old)))
    return Finding("image", False, f"stale: {', '.join(tags)}" if tags else "none", BUILD)


def user_namespaces() -> Finding:
    """Whether this user may make the namespaces of the embedded backend: a child tries it."""
    child = subprocess.run([sys.executable, "-I", "-S", "-c", UNSHARE], capture_output=True)
    if child.returncode == 0:
        return Finding("user namespaces", True, "allowed")
    refusal = child.stderr.decode(errors="replace").strip()
    switches = {
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "user.max_user_namespaces": ("0", "10000"),
    }
    for switch, (bad, better) in switches.items():
        path = Path("/proc/sys", *switch.split(".", 1))
        if path.exists() and path.read_text().strip() == bad:
            return Finding("user namespaces", False, refusal, f"sysctl -w {switch}={better}")
    remedy = "a container's seccomp profile refuses them; see its --security-opt"
    return Finding("user namespaces", False, refusal, remedy)


def landlock() -> Finding:
    """Which Landlock ABI the kernel has; asking for the version changes nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version > 0:
        return Finding("Landlock", True, f"ABI {version}")
    remedy = "a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its lsm= list"
    return Finding("Landlock", False, os.strerror(ctypes.get_errno()), remedy)


def seccomp() -> Finding:
    """Whether system calls can be filtered."""
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    if actions.exists() and "errno" in actions.read_text().split():
        return Finding("seccomp", True, "filters")
    return Finding("seccomp", False, "no filters", "a kernel with CONFIG_SECCOMP_FILTER")


def cgroup_memory() -> Finding:
    """Whether the memory of a group of processes can be bounded on this machine."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    if unified.exists() and "memory" in unified.read_text().split():
        return Finding("cgroup memory", True, "v2")
    if Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        return Finding("cgroup memory", True, "v1")
    remedy = "mount cgroups; without them a test is bounded by RLIMIT_AS per process"
    return Finding("cgroup memory", False, "not mounted", remedy)


def machine() -> Finding:
    """Cores this process may use, memory, kernel and Python."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    found = f"{cores} cores, {gib:.0f} GiB, Linux {platform.release()}"
    return Finding("machine", True, f"{found}, Python {platform.python_version()}")


def examine() -> list[Finding]:
    """All findings, in the order in which they are shown."""
    findings = [machine(), *engine_findings()]
    probes: tuple[Callable[[], Finding], ...] = (user_namespaces, landlock, seccomp, cgroup_memory)
    return findings + [probe() for probe in probes]


def auto(findings: list[Finding]) -> tuple[str, str]:
    """The backend that `sandbox=auto` takes on such findings, "" for none, and how strong it is."""
    good = {finding.name for finding in findings if finding.good}
    if {"Docker engine", "image"} <= good:
        return "docker", "containers; the memory of a test with all its processes is bounded"
    if {"user namespaces", "seccomp"} <= good:
        return "embedded", "namespaces and seccomp; memory is bounded per process only"
    if {"Landlock", "seccomp"} <= good:
        return "embedded", "the weaker form, without namespaces: Landlock, seccomp and rlimits"
    return "", "nothing here holds a program in, and without that judging does not start"


def main() -> None:
    """Print the findings and what they amount to."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    findings = examine()
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "how to get it"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = "[green]yes[/green]" if finding.good else "[red]no[/red]"
        table.add_row(mark, finding.name, escape(finding.found), escape(finding.remedy))
    backend, strength = auto(findings)
    console = Console()
    console.print(table)
    console.print(f"\nsandbox=auto takes [bold]{backend or 'nothing'}[/bold]: {strength}")
    sys.exit(not backend)


if __name__ == "__main__":
    main()
