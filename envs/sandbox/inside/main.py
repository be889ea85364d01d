"""Starts the fork server in the form that the host asks for.

The configuration, a JSON object on the command line: `form` (container, namespaces, landlock or
none), `worker` (see `server.DEFAULTS`) and, in a container, `cage`: the folder in it that becomes
the root; elsewhere `binds`: pairs (path outside, path inside) of what the Python runtime needs, and
`hidden`: folders among them that are not shown where there is a root folder of their own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import sys

from envs.sandbox.inside.confine import (
    STDIO,
    change_root,
    enter_namespaces,
    keep_few_capabilities,
    name_host,
    spare_user,
)
from envs.sandbox.inside.kernel import PR_SET_PDEATHSIG, prctl
from envs.sandbox.inside.landlock import Ruleset
from envs.sandbox.inside.server import DEFAULTS, Server

OTHER_TASKS = 512  # what a user may start beside the sandbox, where tasks count per user


def main() -> None:
    """Serve until the host hangs up. Never returns."""
    config = json.loads(sys.argv[1])
    forms = {
        "container": serve_in_container,
        "namespaces": serve_in_namespaces,
        "landlock": serve_under_landlock,
        "none": serve_filtered,
    }
    forms[config["form"]](config)


def serve_in_container(config: dict) -> None:
    """This process is PID 1 and root of a container that holds it in already.

    Its root becomes a folder that has nothing of what engines put into containers: /proc, /sys,
    terminals.
    """
    server = Server(config["worker"])
    server.count_oom_kills()
    os.chroot(config["cage"])
    os.chdir("/")
    server.open_stdio(STDIO)
    server.serve()


def serve_in_namespaces(config: dict) -> None:
    """Build the cage, with the server as its PID 1 and this process as its guard outside."""
    settings = config["worker"]
    settings["uid"] = settings["gid"] = enter_namespaces()
    settings["pid_namespace"] = True
    fork_guarded()
    os.umask(0o022)
    name_host()
    server = Server(settings)  # before the host's /proc goes out of sight
    change_root(config["binds"], config["hidden"])
    server.open_stdio(STDIO)
    keep_few_capabilities()
    server.serve()


def serve_under_landlock(config: dict) -> None:
    """The weaker form: each test process is held by Landlock, the filter and its limits."""
    readable = [outside for outside, _ in config["binds"]]
    settings = config["worker"] | spare_identity(readable)
    fork_guarded()
    server = Server(settings)
    server.ruleset = Ruleset(readable)
    server.serve()


def serve_filtered(config: dict) -> None:
    """The weakest form: the filter and limits only, so that files can be read."""
    identity = spare_identity([outside for outside, _ in config["binds"]])
    if os.getuid() == 0 and "uid" not in identity:
        raise PermissionError("as root it needs a Python runtime that every user may read")
    fork_guarded()
    Server(config["worker"] | identity).serve()


def spare_identity(readable: list[str]) -> dict:
    """Settings that make test processes another user, if possible and if he may read the runtime.

    Where they have to be this user, all that he runs counts towards RLIMIT_NPROC.
    """
    if os.getuid() == 0 and all(map(open_to_all, readable)):
        return {"uid": spare_user(), "gid": spare_user()}
    return {"max_tasks": DEFAULTS["max_tasks"] + OTHER_TASKS + tasks_of_this_user()}


def fork_guarded() -> None:
    """Return in a child; this process stays behind as its guard.

    The guard waits until the child ends or the host hangs up, and leaves nothing. When it is killed
    itself, the child dies with it.
    """
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    poll = select.poll()
    poll.register(os.pidfd_open(pid), select.POLLIN)
    poll.register(0, 0)  # POLLHUP alone: what the host says is not for this process
    poll.poll()
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os._exit(0 if status == 0 else 1)


def open_to_all(path: str) -> bool:
    """True if any user may read this file or folder."""
    if not os.stat(path).st_mode & stat.S_IROTH:
        return False
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True


def tasks_of_this_user() -> int:
    """Threads of the calling user on this host."""
    count = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/status") as status:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in status)
        except (OSError, ValueError):
            continue  # it has just ended
        if int(fields["Uid"].split()[0]) == os.getuid():
            count += int(fields["Threads"])
    return count
