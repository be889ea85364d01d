"""Check what this machine offers the sandbox, what is missing, and how to get it.

`python -m envs.sandbox.doctor` runs a program in each form of the embedded sandbox, since a
container or a security module may forbid what the kernel's configuration allows. Exit code 1 where
no backend works.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass

from envs.command_line import quiet_when_unread, take_no_arguments
from envs.sandbox.base import Job, Outcome, SandboxError
from envs.sandbox.docker_client import (
    ANSWER_S,
    BUILD,
    REPOSITORY,
    connect,
    failure_reason,
    image_tag,
)
from envs.sandbox.embedded import EmbeddedSandbox

REMEDIES = {
    "namespaces": "sysctl user.max_user_namespaces=10000, kernel.unprivileged_userns_clone=1 and "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container see its --security-opt",
    "landlock": "a kernel with landlock in its lsm= list, and CONFIG_SECCOMP_FILTER",
}


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
        version, info = client.version(), client.info()
        tags = [tag for image in client.images.list(REPOSITORY) for tag in image.tags]
        client.close()
    except (SandboxError, OSError) as error:  # the client's time-outs are of the second kind
        remedy = "install and start Docker, or set DOCKER_HOST; as root on Debian: .ci/engine start"
        return [Check("Docker engine", False, f"none at {where} ({failure_reason(error)})", remedy)]
    missing = [key for key in ("MemoryLimit", "PidsLimit") if not info.get(key)]
    remedy = "give the engine the memory and pids cgroup controllers"
    current = image_tag() in tags
    stale = f"stale: {', '.join(tags)}" if tags else "none"
    return [
        Check("Docker engine", True, f"{version['Version']}, at {where}"),
        Check("engine's limits", not missing, ", ".join(missing), remedy if missing else ""),
        Check("image", current, image_tag() if current else stale, "" if current else BUILD),
    ]


def check_form(form: str) -> Check:
    """Check whether a program runs in a form of the embedded sandbox."""
    try:
        with EmbeddedSandbox(1, form=form) as sandbox:
            ((_, (execution,)),) = sandbox.run([Job("print(1)", ("",))], lambda *_: True)
    except (SandboxError, OSError) as error:
        detail = str(error)
    else:
        if execution.outcome is Outcome.FINISHED:
            return Check(form, True, "a program runs")
        detail = f"{execution.outcome}: {execution.stderr}"
    return Check(form, False, detail, REMEDIES[form])


def run_checks() -> list[Check]:
    """Return all checks, in the order in which they are shown."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{len(os.sched_getaffinity(0))} cores, {gib:.0f} GiB, Linux {platform.release()}"
    machine += f", Python {platform.python_version()}"
    forms = check_form("namespaces"), check_form("landlock")
    return [Check("machine", True, machine), *check_engine(), *forms]


def auto_backend(checks: list[Check]) -> tuple[str, str]:
    """Return (the backend that `sandbox=auto` takes, how strong it is); "" for no backend."""
    passed = {check.name for check in checks if check.passed}
    if {"Docker engine", "image"} <= passed:
        return "docker", "containers; the memory of a test with all its processes is bounded"
    if "namespaces" in passed:
        return "embedded", "namespaces and seccomp; memory is bounded per process only"
    if "landlock" in passed:
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
