"""Start the fork server in the form that the host requests.

The configuration is a JSON object on the command line:
- `form`: container, namespaces, landlock or none;
- `worker`: see `server.DEFAULTS`;
- `cage` (container): the folder in the container that becomes the root;
- `binds` (other forms): pairs (path outside, path inside) of files for the Python runtime;
- `hidden` (namespaces): folders among them that are covered by empty ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import sys

from envs.sandbox.inside.confinement import (
    FOLDER,
    STDIO,
    LandlockRuleset,
    change_root,
    enter_namespaces,
    hide_host_name,
    keep_few_capabilities,
    unused_user,
)
from envs.sandbox.inside.folder import LastingFolder, MountedFolder, remove_contents
from envs.sandbox.inside.kernel import PR_SET_PDEATHSIG, prctl
from envs.sandbox.inside.server import MAX_TASKS, Server

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any, NoReturn

_MEMORY, _FOLDER_PREFIX = "/dev/shm", "spo-bench-"
OTHER_TASKS = 512  # that a user may start beside the sandbox, where tasks count per user


def main() -> NoReturn:
    """Serve until the host hangs up."""
    config = json.loads(sys.argv[1])
    forms = {
        "container": serve_in_container,
        "namespaces": serve_in_namespaces,
        "landlock": serve_under_landlock,
        "none": serve_filtered,
    }
    forms[config["form"]](config)


def serve_in_container(config: dict[str, Any]) -> NoReturn:
    """Serve as PID 1 and root of a container that is confined already.

    Its root becomes a folder without what engines put into containers: /proc, /sys, terminals.
    """
    server = Server(config["worker"])
    server.count_oom_kills()
    os.chroot(config["cage"])
    os.chdir("/")
    server.open_stdio(STDIO)
    server.folder = LastingFolder(FOLDER, limited=True)
    server.serve()


def serve_in_namespaces(config: dict[str, Any]) -> NoReturn:
    """Build the sandbox, with the server as its PID 1 and this process as its guard outside."""
    settings = config["worker"]
    settings["uid"] = settings["gid"] = enter_namespaces()
    settings["pid_namespace"] = True
    fork_guarded()
    os.umask(0o022)
    hide_host_name()
    server = Server(settings)  # before the host's /proc goes out of sight
    change_root(config["binds"], config["hidden"])
    server.open_stdio(STDIO)
    server.folder = MountedFolder()
    keep_few_capabilities()
    server.serve()


def serve_under_landlock(config: dict[str, Any]) -> NoReturn:
    """Serve in the weaker form: Landlock, the filter and limits hold each test process."""
    readable = [outside for outside, _ in config["binds"]]
    settings = config["worker"] | test_identity(readable)
    folder = make_folder(settings)
    fork_guarded(folder)
    server = Server(settings)
    server.landlock = LandlockRuleset(readable), LandlockRuleset(readable, folder)
    server.folder = LastingFolder(folder, limited=False) if folder else None
    server.serve()


def serve_filtered(config: dict[str, Any]) -> NoReturn:
    """Serve in the weakest form: the filter and limits only, so that files can be read."""
    identity = test_identity([outside for outside, _ in config["binds"]])
    if os.getuid() == 0 and "uid" not in identity:
        raise PermissionError("as root it needs a Python runtime that every user may read")
    fork_guarded()
    Server(config["worker"] | identity).serve()


def test_identity(readable: list[str]) -> dict[str, int]:
    """Return settings that make test processes another user, if that user may read the runtime.

    Where they have to be this user, all that it runs counts towards RLIMIT_NPROC.
    """
    if os.getuid() == 0 and all(map(open_to_all, readable)):
        return {"uid": unused_user(), "gid": unused_user()}
    return {"max_tasks": MAX_TASKS + OTHER_TASKS + tasks_of_this_user()}


def make_folder(settings: dict[str, Any]) -> str | None:
    """Make a folder in memory for programs that use files; None where there is no place for it.

    It belongs to the user of test processes. Those whose guards were killed are removed.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(_MEMORY):
            owner = name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
            if name.startswith(_FOLDER_PREFIX) and not os.path.exists(f"/proc/{owner}"):
                remove_folder(f"{_MEMORY}/{name}")
        path = f"{_MEMORY}/{_FOLDER_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        os.mkdir(path, 0o700)
        if "uid" in settings:
            os.chown(path, settings["uid"], settings["gid"])
        return path
    return None


def remove_folder(path: str) -> None:
    """Remove a folder and all in it, if this user may."""
    with contextlib.suppress(OSError):
        remove_contents(path)
        os.rmdir(path)


def fork_guarded(folder: str | None = None) -> None:
    """Return in a child; this process stays behind as its guard.

    The guard waits until the child ends or the host hangs up, and leaves nothing, nor the `folder`.
    If the guard is killed itself, the child dies with it.
    """
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    poll = select.poll()
    poll.register(os.pidfd_open(pid), select.POLLIN)
    poll.register(0, 0)  # POLLHUP alone: the host's messages are not for this process
    poll.poll()
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if folder is not None:
        remove_folder(folder)
    os._exit(0 if status == 0 else 1)


def open_to_all(path: str) -> bool:
    """Return whether any user may read this file or folder."""
    if not os.stat(path).st_mode & stat.S_IROTH:
        return False
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True


def tasks_of_this_user() -> int:
    """Return the number of threads of the calling user on this host."""
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
