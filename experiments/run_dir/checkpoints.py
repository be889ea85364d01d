"""What a run goes on from: written whole or not at all, checked before it is believed.

Beside a checkpoint's weights, which any run can load, stand `state.pt`, all that the loop needs to
go on as if it had never stopped, the replay store's rows in `replay.arrow` where there is one, and
`state.json`, written last, with the hashes of the others. A state is tensors, tables and plain
values: to read it runs no code of whoever wrote it.

One file, whatever wrote it: what several ranks hold in shards is whole there, and any number of
them, or one process, goes on from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from envs.problem import Judgement, Verdict
from experiments.run_dir.atomic_files import BEFORE, read_arrow, sync, write_arrow

if TYPE_CHECKING:
    import pyarrow as pa

STATE, SEAL = "state.pt", "state.json"
PLAIN = [Judgement, Verdict]  # of ours, what a state may hold


class Damaged(Exception):
    """A state that is not as it was written; says how."""


class _Hashed:
    """Hashes what goes through it into a file, and remembers why that failed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, hashlib.sha256()
        self.failed: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self.file.write(data)
        except OSError as error:
            self.failed = error
            raise
        self.digest.update(data)
        return len(data)

    def flush(self) -> None:
        self.file.flush()


def write(folder: Path, state: dict[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """The state beside the weights in `folder`. Raises OSError, e.g. on a full disk."""
    hashes = {}
    for name, table in tables.items():
        file = folder / f"{name}.arrow"
        write_arrow(table, file)
        sync(file)
        hashes[file.name] = _hash(file)
    with (folder / STATE).open("wb") as file:
        hashed = _Hashed(file)
        try:
            torch.save(state, hashed)
        except RuntimeError:
            if hashed.failed is None:
                raise
            raise hashed.failed from None  # torch's writer hides it behind an error of its own
        os.fsync(file.fileno())
    seal = {"step": state["step"], "sha256": hashed.digest.hexdigest(), "tables": hashes}
    (folder / SEAL).write_text(json.dumps(seal) + "\n")


def read(folder: Path) -> dict[str, Any]:
    """The state in `folder`, which it names, with its `tables`, without its `tensors`.

    Raises Damaged.
    """
    try:
        seal = json.loads((folder / SEAL).read_text())
        told = {STATE: seal["sha256"]} | seal.get("tables", {})
        for name, digest in told.items():
            if _hash(folder / name) != digest:
                raise Damaged(f"{name} has not the hash that {SEAL} tells")
        state = _opened(folder)
        state.pop("tensors", None)
        files = [folder / name for name in seal.get("tables", {})]
        tables = {file.stem: read_arrow(file) for file in files}
        return state | {"folder": folder, "tables": tables}
    except FileNotFoundError as error:
        raise Damaged(f"there is no {Path(error.filename).name}") from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, pickle.UnpicklingError) as bad:
        raise Damaged(f"{type(bad).__name__}: {' '.join(str(bad).split())[:100]}") from bad


def tensors(folder: Path) -> dict[str, Any]:
    """The tensors of a state that `read` has found whole.

    Mapped from the file, so that the ranks of a machine share one copy: not to be kept.
    """
    return _opened(folder)["tensors"]


def _opened(folder: Path) -> dict[str, Any]:
    with torch.serialization.safe_globals(PLAIN):
        return torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def latest(run: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The last whole state in a run folder; None: there is none, the run begins anew.

    `say` is told of each damaged one that was passed over.
    """
    for folder in sorted(_sealed(run), key=_step, reverse=True):
        try:
            return read(folder)
        except Damaged as error:
            say(f"{folder}: damaged ({error}); the checkpoint before it is taken")
    return None


def is_whole(folder: Path) -> bool:
    """Whether a run can go on from there, as far as a look tells."""
    return (folder / SEAL).is_file()


def _sealed(run: Path) -> list[Path]:
    """Checkpoints with a state. What is hidden is not whole, but for one that was about to be
    replaced when the run was killed (`Records.checkpoint`)."""
    places = (f"checkpoints/{which}/{SEAL}" for which in ("[!.]*", f".*{BEFORE}"))
    return [seal.parent for place in places for seal in run.glob(place)]


def _step(folder: Path) -> int:
    try:
        return int(json.loads((folder / SEAL).read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # damaged: the last to be tried
