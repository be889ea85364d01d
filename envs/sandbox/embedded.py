"""The sandbox that needs nothing but Linux: a fork server in namespaces of its own.

`confine.py` builds the cage and `worker.py` serves in it; here they are started and talked to.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import socket
import subprocess
from pathlib import Path

from envs.sandbox.handle import WorkerHandle
from envs.sandbox.pool import Pool
from envs.sandbox.runtime import PACKAGES_FOLDER, base_python, runtime_binds
from envs.sandbox.seccomp import child_filter

# A fixed hash seed makes the order of a set of strings, and so a verdict, repeatable; one arena and
# one BLAS thread keep the address space small and the server free of threads.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
CLOSE_S = 5.0  # for a guard to end its cage


class EmbeddedWorker(WorkerHandle):
    """A confined fork server at the other end of a socket pair."""

    def __init__(self, config: dict) -> None:
        self.config = config
        self._process: subprocess.Popen | None = None
        self._socket: socket.socket | None = None
        self._log = -1

    def start(self) -> None:
        script = str(Path(__file__).with_name("confine.py"))
        flags = ["-s", "-S", "-P", "-B", "-W", "ignore", "-X", "utf8"]
        self._socket, inner = socket.socketpair()
        self._log = os.memfd_create("log")
        with inner:
            self._process = subprocess.Popen(
                [base_python(), *flags, script, json.dumps(self.config)],
                stdin=inner,
                stdout=inner,
                stderr=self._log,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,  # an interrupt at the terminal is the host's alone
            )
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self) -> bytes | None:
        try:
            return self._socket.recv(1 << 20)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def kill(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(CLOSE_S)  # the guard has seen the hang-up
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def cause_of_death(self) -> str:
        if self._log < 0:
            return ""
        text = os.pread(self._log, 1 << 16, 0).decode("utf-8", "replace").strip()
        return text.rpartition("\n")[2]


class EmbeddedSandbox(Pool):
    """Workers in namespaces, as many as asked for (0: all cores but one)."""

    def __init__(self, workers: int = 0) -> None:
        config = {
            "binds": runtime_binds(),
            "worker": {
                "seccomp": base64.b64encode(child_filter(platform.machine())).decode(),
                "packages": PACKAGES_FOLDER,
            },
        }
        strength = "user, mount, PID, network, IPC and UTS namespaces; seccomp allowlist; rlimits"
        super().__init__(
            lambda: EmbeddedWorker(config), workers, name="embedded", strength=strength
        )
