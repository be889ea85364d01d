"""A Ray cluster that this process has joined or started, and the results of its actors."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from experiments.errors import UserError

START_ATTEMPTS = 4  # to start a cluster of this run's own: a busy machine takes long
CONNECT_S = 30  # to connect to a busy machine
POLL_S = 2  # how often a wait checks that the cluster is still there
MAX_DEATHS = 10  # of an actor in a run: more is not chance


class Cluster:
    """This process's membership in a Ray cluster: one from `ray start`, or one of its own."""

    def __init__(self, address: str | None, cpus: int = 0) -> None:
        """Join the cluster at `address`, or start one with `cpus` CPUs here. Raises UserError."""
        settings: dict[str, Any] = {"address": address}
        if address is None:
            system = {"worker_niceness": 0, "prestart_worker_first_driver": False}
            settings = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
            settings["_system_config"] = system
        host, _, port = (address or "").rpartition(":")
        with _signal_handlers_kept():
            try:
                if host and port.isdecimal():  # Ray itself would try for minutes
                    socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
                for attempts_left in reversed(range(START_ATTEMPTS)):
                    try:
                        ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
                        break
                    except Exception as error:
                        ray.shutdown()
                        if "timed out during startup" not in str(error) or not attempts_left:
                            raise
            except Exception as error:  # Ray raises plain ones too
                reason = " ".join(str(error).split("\n")[0].split())
                raise UserError(
                    f"runtime.address={address}: {reason}; `ray start --head` starts a cluster, "
                    "and runtime.address=null runs without one"
                ) from error
        context = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        # Ray's head, and its daemon on this node: without either the cluster is gone.
        self._needed = [(host, int(port)), (node["NodeManagerAddress"], node["NodeManagerPort"])]

    def take_all(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results. Raises the error of an actor's call, or UserError."""
        return [self.take(reference) for reference in references]

    def take(self, reference: Any) -> Any:
        """Wait for a result. Raises the error of the actor's call.

        UserError if the cluster has ended, or if an actor keeps dying.
        """
        try:
            while not ray.wait([reference], timeout=POLL_S)[0]:
                if not self.alive():
                    raise self._ended("")
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            reason = (" ".join(str(error).strip().split("\n")[0].split()))[:300]
            if not self.alive():
                raise self._ended(f" ({reason})") from error
            raise UserError(
                f"runtime=ray: an actor died {MAX_DEATHS + 1} times: {reason}; see "
                "`ray logs` and the kernel's log"
            ) from error

    def _ended(self, cause: str) -> UserError:
        return UserError(
            f"runtime=ray: the Ray cluster has ended{cause}; start it again, and resume "
            "with resume=FOLDER"
        )

    def alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        with _signal_handlers_kept():
            ray.shutdown()


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore signal handlers. Ray replaces SIGTERM's with one that ends the process in 3 s."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
