"""The embedded backend, which needs nothing but Linux: fork servers confined by the kernel alone.

It uses namespaces where the kernel lets an ordinary user have them, and Landlock where it does
not. It runs without either only if the user insists. `inside/` is the code that runs there.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import resource
import select
import socket
import subprocess
from typing import Any

from envs.messages import readable
from envs.sandbox.base import SandboxError
from envs.sandbox.inside import FLAGS, source
from envs.sandbox.inside.framing import READY
from envs.sandbox.inside.program import MAX_FDS
from envs.sandbox.pool import Pool, Splitter, WorkerHandle
from envs.sandbox.python_runtime import (
    DEVICES,
    ENVIRONMENT,
    PACKAGES_FOLDER,
    base_python,
    hidden_folders,
    packages_folder,
    runtime_files,
    worker_environment,
)
from envs.sandbox.seccomp import Opening, child_filter

STRENGTHS = {
    "namespaces": (
        "user, mount, PID, network, IPC and UTS namespaces, a read-only root folder, a PID "
        "namespace per test, a system-call allowlist, resource limits on each test's one process"
    ),
    "landlock": (
        "WEAKER, since user namespaces are refused: Landlock, a system-call allowlist without "
        "sockets, resource limits; names and attributes of the host's files are visible"
    ),
    "none": (
        "NONE that deserves the name: a system-call allowlist and resource limits; programs can "
        "read every file that this user (or, under root, any user) can read"
    ),
}
# How a program may open files: namespaces show none that it could write, Landlock refuses most.
OPENING: dict[str, Opening] = {
    "namespaces": "any",
    "landlock": "no truncation",
    "none": "read only",
}
CLOSE_S = 1.0  # for a guard to end its worker
TRIAL_S = 120.0  # for a worker to start, when a form is tried
NO_ANSWER = f"no worker started within {TRIAL_S:.0f} s; try again when the machine is less busy"


class EmbeddedWorker(WorkerHandle):
    """A confined fork server at the other end of a socket pair."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None  # the guard
        self._log = -1

    def start(self) -> None:
        self.socket, inner = socket.socketpair()
        self._log = os.memfd_create("log")
        with inner:
            self.process = subprocess.Popen(
                [base_python(), *FLAGS, "-c", source(), json.dumps(self.config)],
                stdin=inner.fileno(),
                stdout=inner.fileno(),
                stderr=self._log,
                env=worker_environment(),
                cwd="/",
                start_new_session=True,  # an interrupt at the terminal is for the host alone
            )
        self.socket.setblocking(False)

    def kill(self) -> None:
        if self.socket is not None:
            self.socket.close()
        if self.process is not None:
            try:
                self.process.wait(CLOSE_S)  # the guard sees the hang-up
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def cause_of_death(self) -> str:
        if self._log < 0:
            return ""
        text = os.pread(self._log, 1 << 16, 0).decode("utf-8", "replace").strip()
        return readable(text.rpartition("\n")[2])


class EmbeddedSandbox(Pool):
    """A pool of confined fork servers; `workers` of 0 means one for each core.

    `form` is a key of STRENGTHS; None takes the strongest that this machine allows. Raises
    SandboxError where none works, unless `i_accept_no_isolation`, and where programs cannot have as
    many open files as on other machines.
    """

    def __init__(
        self, workers: int = 0, *, form: str | None = None, i_accept_no_isolation: bool = False
    ) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if 0 <= files < MAX_FDS:  # infinity is -1
            raise SandboxError(
                f"programs need {MAX_FDS} open files and this shell allows {files} (ulimit -Hn): "
                f"raise its hard limit to {MAX_FDS} or more, or use sandbox=docker"
            )
        self.form = form or strongest_form(i_accept_no_isolation)
        config = worker_config(self.form)
        super().__init__(
            lambda: EmbeddedWorker(config), workers, name="embedded", strength=STRENGTHS[self.form]
        )
        self.platform = f"{self.form}, {self.platform}"


def worker_config(form: str) -> dict[str, Any]:
    """Return a worker's configuration. Raises SandboxError on an unknown machine."""
    try:
        seccomp = child_filter(opening=OPENING[form])
        seccomp_files = child_filter(opening=OPENING[form], changing=True)
    except KeyError as error:
        raise SandboxError(f"no system-call filter for {platform.machine()}") from error
    return {
        "form": form,
        "binds": [*runtime_files(), *((path, path) for path in DEVICES if os.path.exists(path))],
        "hidden": hidden_folders(),
        "confinement": {"seccomp": seccomp.hex(), "seccomp_files": seccomp_files.hex()},
        "environment": ENVIRONMENT,
        "packages": PACKAGES_FOLDER if form == "namespaces" else packages_folder(),
    }


def strongest_form(i_accept_no_isolation: bool) -> str:
    """Return the strongest form that works here. Raises SandboxError with the reasons if none does.

    A worker that neither starts nor fails in time is no reason to take a weaker form.
    """
    reasons = []
    for form in ("namespaces", "landlock", "none")[: 3 if i_accept_no_isolation else 2]:
        reason = form_unavailable(form)
        if reason is None:
            return form
        if reason == NO_ANSWER:
            raise SandboxError(f"sandbox form {form}: {reason}")
        reasons.append(f"{form}: {reason}")
    raise SandboxError(
        f"nothing on this machine can confine untrusted programs ({'; '.join(reasons)}). Start a "
        "Docker engine or allow user namespaces (python -m envs.sandbox.doctor says how), or "
        "accept the risk with sandbox.i_accept_no_isolation=true"
    )


@functools.cache
def form_unavailable(form: str) -> str | None:
    """Return why a form does not work here, by starting a worker; None if it does."""
    worker = None
    try:
        worker = EmbeddedWorker(worker_config(form))
        worker.start()
        if not select.select([worker], [], [], TRIAL_S)[0]:
            return NO_ANSWER
        frames = Splitter().feed(worker.receive() or b"")
        if frames and frames[0][0] == READY:
            return None
        return worker.cause_of_death() or "a worker did not start"
    except (SandboxError, OSError) as error:
        return str(error)
    finally:
        if worker is not None:
            worker.kill()
