"""The connection of a run to a Ray cluster: one that `ray start` began, or one of its own."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.errors import UserError

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are asked again
    # Else Ray ends this process a minute after its cluster has gone, and a run without a checkpoint
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
STARTS = 4  # of a cluster of one's own
ANSWER_S = 30  # for a connection to a busy machine


class Connection:
    """While it lasts, this process is one of the cluster's."""

    def __init__(self, key: str, address: str | None, cpus: int = 0) -> None:
        """`key`: what gave the address; without one Ray is started here, and counts so many CPUs.

        Raises UserError.
        """
        os.environ |= {name: os.environ.get(name, value) for name, value in SETTINGS.items()}
        if address and (Path.home() / ".ray" / "auth_token").is_file():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does
        import ray

        with _signals_kept():
            try:
                _check_answers(address)
                _init(**_own(cpus) if address is None else {"address": address})
            except Exception as error:  # Ray raises plain ones too
                told = " ".join(str(error).split("\n")[0].split())
                raise UserError(
                    f"{key}={address}: {told}; `ray start --head` begins a cluster, and {key}=null "
                    "does without one"
                ) from error
        own = ray.get_runtime_context()
        host, _, port = own.gcs_address.rpartition(":")
        here = next(node for node in ray.nodes() if node["NodeID"] == own.get_node_id())
        # Ray's head, and its part of this node: where either has gone, so has the cluster.
        self._needed = [(host, int(port)), (here["NodeManagerAddress"], here["NodeManagerPort"])]

    def alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=ANSWER_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End this process's actors; a cluster of its own ends with them."""
        import ray

        with _signals_kept():
            ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Raises OSError at once; Ray tries for minutes, and says so in twenty lines."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()


def _own(cpus: int) -> dict[str, Any]:
    settings = {"worker_niceness": 0, "prestart_worker_first_driver": False}
    return {
        "address": "local",
        "num_cpus": cpus,
        "include_dashboard": False,
        "_system_config": settings,
    }


def _init(**given: Any) -> None:
    """Ray gives its own processes half a minute to start, which a busy machine does not keep to."""
    import ray

    for left in reversed(range(STARTS)):
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **given)
            return
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error) or not left:
                raise


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM over, and would end the process three seconds after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
