"""Checkpoint files: written atomically, and verified by hash before use.

A checkpoint folder holds the weights, which any run can load, and the state to resume from:

- `state.pt`: all that the loop needs to resume exactly;
- `replay.arrow`: the rows of the replay buffer, if there is one;
- `state.json`: written last, with the hashes of the others.

A state is tensors, tables and plain values, so reading it executes no code. It is the same file for
every runtime: shards are stored whole, and any number of ranks, or one process, resumes from it.
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
PLAIN_TYPES: list[Any] = [Judgement, Verdict]  # classes of this project that a state may hold


class Damaged(Exception):
    """A state differs from the one written; the message says how."""


class _HashingFile:
    """Hash what is written to a file, and keep the error if writing fails."""

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
    """Write the state beside the weights in `folder`. Raises OSError, e.g. on a full disk."""
    hashes = {}
    for name, table in tables.items():
        path = folder / f"{name}.arrow"
        write_arrow(table, path)
        sync(path)
        hashes[path.name] = _hash(path)
    with (folder / STATE).open("wb") as file:
        hashed = _HashingFile(file)
        try:
            torch.save(state, hashed)  # type: ignore[arg-type]  # it needs write and flush only
        except RuntimeError:
            if hashed.failed is None:
                raise
            raise hashed.failed from None  # torch's writer hides it behind an error of its own
        os.fsync(file.fileno())
    seal = {"step": state["step"], "sha256": hashed.digest.hexdigest(), "tables": hashes}
    (folder / SEAL).write_text(json.dumps(seal) + "\n")


def read(folder: Path) -> dict[str, Any]:
    """Read the state in `folder`: with `folder` and its `tables`, without its `tensors`.

    Raises Damaged.
    """
    try:
        seal = json.loads((folder / SEAL).read_text())
        hashes = {STATE: seal["sha256"]} | seal.get("tables", {})
        for name, digest in hashes.items():
            if _hash(folder / name) != digest:
                raise Damaged(f"{name} does not have the hash in {SEAL}")
        state = _load(folder)
        state.pop("tensors", None)
        files = [folder / name for name in seal.get("tables", {})]
        tables = {file.stem: read_arrow(file) for file in files}
        return state | {"folder": folder, "tables": tables}
    except FileNotFoundError as error:
        raise Damaged(f"{Path(error.filename).name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, pickle.UnpicklingError) as bad:
        raise Damaged(f"{type(bad).__name__}: {' '.join(str(bad).split())[:100]}") from bad


def tensors(folder: Path) -> dict[str, Any]:
    """Read the tensors of a state that `read` has verified.

    They are mapped from the file, so the ranks of a machine share one copy; do not keep them.
    """
    return _load(folder)["tensors"]


def _load(folder: Path) -> dict[str, Any]:
    with torch.serialization.safe_globals(PLAIN_TYPES):
        return torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def latest(run: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Read the last undamaged state in a run folder; None if there is none.

    Each damaged state is reported to `say` and skipped.
    """
    folders = sorted(_sealed(run), key=_step)
    while folders:
        folder = folders.pop()
        try:
            return read(folder)
        except Damaged as error:
            rest = "using the checkpoint before it"
            if not folders:
                rest = "there is no other checkpoint, so the run begins again"
            say(f"{folder}: damaged ({error}); {rest}")
    return None


def is_whole(folder: Path) -> bool:
    """Whether a folder has a state to resume from; it is not verified."""
    return (folder / SEAL).is_file()


def _sealed(run: Path) -> list[Path]:
    """Return the checkpoints with a state.

    Hidden folders are unfinished, except one that was about to be replaced when the run was killed
    (`Records.checkpoint`).
    """
    places = (f"checkpoints/{which}/{SEAL}" for which in ("[!.]*", f".*{BEFORE}"))
    return [seal.parent for place in places for seal in run.glob(place)]


def _step(folder: Path) -> int:
    try:
        return int(json.loads((folder / SEAL).read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # damaged: tried last
