"""Check what this machine offers the sandbox, what is missing, and how to get it.

`python -m envs.sandbox.doctor` runs a program in each form of the embedded sandbox, since a
container or a security module may forbid what the kernel's configuration allows. Exit code 1 where
no backend works.
"""

from __future__ import annotations

import os
import platform
import sys

from envs.command_line import quiet_when_unread, take_no_arguments
from envs.sandbox.base import Job, Outcome, SandboxError
from envs.sandbox.docker import unavailable
from envs.sandbox.embedded import EmbeddedSandbox

STRENGTHS = {
    "docker": "containers; the memory of a test with all its processes is bounded",
    "namespaces": "namespaces and seccomp; memory is bounded per process only",
    "landlock": "the weaker form, without namespaces: Landlock, seccomp and rlimits",
}
REMEDIES = {
    "docker": "install and start Docker, or set DOCKER_HOST; as root on Debian: .ci/engine start",
    "namespaces": "sysctl user.max_user_namespaces=10000, kernel.unprivileged_userns_clone=1 and "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container see its --security-opt",
    "landlock": "a kernel with landlock in its lsm= list, and CONFIG_SECCOMP_FILTER",
}


def lack(name: str) -> str | None:
    """Return why one of STRENGTHS cannot be had here; None if a program runs in it."""
    if name == "docker":
        return unavailable()
    try:
        with EmbeddedSandbox(1, form=name) as sandbox:
            ((_, (execution,)),) = sandbox.run([Job("print(1)", ("",))], lambda *_: True)
    except (SandboxError, OSError) as error:
        return str(error)
    done = execution.outcome is Outcome.FINISHED
    return None if done else f"{execution.outcome}: {execution.stderr}"


def main() -> None:
    """Print what the machine has, what it lacks, and what `sandbox=auto` takes."""
    take_no_arguments(__doc__, sys.argv[1:])
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    versions = f"Linux {platform.release()}, Python {platform.python_version()}"
    print(f"{cores} cores, {gib:.0f} GiB, {versions}")
    lacking = {name: lack(name) for name in STRENGTHS}
    for name, reason in lacking.items():
        print(f"{name:11} {'yes' if reason is None else f'no: {reason}; {REMEDIES[name]}'}")
    here = next((name for name, reason in lacking.items() if reason is None), None)
    strength = STRENGTHS[here] if here else "nothing here can confine programs"
    print(f"sandbox=auto takes {here or 'nothing'}: {strength}")
    sys.exit(here is None)


if __name__ == "__main__":
    with quiet_when_unread():
        main()
