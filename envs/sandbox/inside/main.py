"""Start the fork server in the form that the host requests.

The configuration is a JSON object on the command line:
- `form`: container, namespaces, landlock or none;
- `confinement`: see `Confinement`; `environment`: environment variables of programs; `packages`:
  the folder that holds numpy;
- `cage` (container): the folder in the container that becomes the root;
- `binds` (other forms): pairs (path outside, path inside) of files for the Python runtime;
- `hidden` (namespaces): folders among them that are covered by empty ones.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

from envs.sandbox.inside.confinement import (
    FOLDER,
    KEPT_CAPABILITIES,
    STDIO,
    LandlockRuleset,
    LastingFolder,
    MountedFolder,
    change_root,
    enter_namespaces,
    make_folder,
    remove_folder,
    test_identity,
)
from envs.sandbox.inside.kernel import PR_SET_PDEATHSIG, check, libc, prctl, set_capabilities
from envs.sandbox.inside.server import Server

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main() -> NoReturn:
    """Serve in the form that the host requests, until the host hangs up."""
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
    server = Server(config)
    server.count_oom_kills()
    os.chroot(config["cage"])
    os.chdir("/")
    server.open_stdio(STDIO)
    server.confinement.folder = LastingFolder(FOLDER, is_watched=False)
    server.serve()


def serve_in_namespaces(config: dict[str, Any]) -> NoReturn:
    """Build the sandbox, with the server as its PID 1 and this process as its guard outside."""
    user = enter_namespaces()
    fork_guarded()
    os.umask(0o022)
    check(libc.sethostname(b"sandbox", 7), "sethostname")
    server = Server(config, user=user, pid_namespace=True)
    change_root(config["binds"], config["hidden"])
    server.open_stdio(STDIO)
    server.confinement.folder = MountedFolder()
    set_capabilities(KEPT_CAPABILITIES)
    server.serve()


def serve_under_landlock(config: dict[str, Any]) -> NoReturn:
    """Serve in the weaker form: Landlock, the filter and limits hold each test process."""
    readable = [outside for outside, _ in config["binds"]]
    identity = test_identity(readable)
    folder = make_folder(identity.get("user"))
    fork_guarded(folder)
    server = Server(config, **identity)
    server.confinement.landlock = LandlockRuleset(readable), LandlockRuleset(readable, folder)
    server.confinement.folder = LastingFolder(folder, is_watched=True) if folder else None
    server.serve()


def serve_filtered(config: dict[str, Any]) -> NoReturn:
    """Serve in the weakest form: the filter and limits only, so that files can be read."""
    identity = test_identity([outside for outside, _ in config["binds"]])
    if os.getuid() == 0 and "user" not in identity:
        raise PermissionError("as root it needs a Python runtime that every user may read")
    fork_guarded()
    Server(config, **identity).serve()


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
