"""Checkpoint files: written atomically, and verified by hash before use.

A checkpoint folder holds the weights, which any run can load, and the state to resume from:

- `state.pt`: all that the loop needs to resume exactly;
- `state.json`: written last, with the step and the hash of `state.pt`.

A state is tensors and plain values, so reading it executes no code. It is the same file for every
runtime: shards are stored whole, and any number of ranks, or one process, resumes from it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from envs.problem import Judgement, Verdict

STATE, SEAL = "state.pt", "state.json"
FULL_BYTES = 1 << 20  # free, on a disk that is full
PLAIN_TYPES: list[Any] = [Judgement, Verdict]  # classes of this project that a state may hold


class Damaged(Exception):
    """A state differs from the one written; the message says how."""


def write(folder: Path, state: dict[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Write the state beside the weights in `folder`. Raises OSError, e.g. on a full disk."""
    state = state | {"tables": {name: _as_bytes(table) for name, table in tables.items()}}
    try:
        torch.save(state, folder / STATE)
    except RuntimeError as error:
        if shutil.disk_usage(folder).free > FULL_BYTES:
            raise
        raise OSError(errno.ENOSPC, "the disk is full") from error  # which torch does not say
    seal = {"step": state["step"], "sha256": _hash(folder / STATE)}
    (folder / SEAL).write_text(json.dumps(seal) + "\n")


def tensors(folder: Path) -> dict[str, Any]:
    """Read the tensors of a state that `latest` has verified.

    They are mapped from the file, so the ranks of a machine share one copy; do not keep them.
    """
    return _load(folder)["tensors"]


def latest(run: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Read the last undamaged state in a run folder; None if there is none.

    It comes with its `tables`, without its `tensors`, and with its `folder`, which is hidden if the
    run was killed just before its rename. Each damaged state is reported to `say` and skipped.
    """
    seals = sorted(run.glob(f"checkpoints/*/{SEAL}"), key=lambda seal: step_of(seal))
    for folder in (seal.parent for seal in reversed(seals)):
        try:
            state = _read(folder)
        except Damaged as error:
            say(f"{folder}: damaged ({error}); using the checkpoint before it, if there is one")
            continue
        state.pop("tensors", None)
        buffers = {name: pa.py_buffer(one.numpy()) for name, one in state["tables"].items()}
        tables = {name: pa.ipc.open_stream(each).read_all() for name, each in buffers.items()}
        return state | {"folder": folder, "tables": tables}
    return None


def step_of(seal: Path) -> int:
    """Return the step of a checkpoint; 0 if its seal is damaged, so that it is tried last."""
    try:
        return int(json.loads(seal.read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _read(folder: Path) -> dict[str, Any]:
    try:
        if _hash(folder / STATE) != json.loads((folder / SEAL).read_text())["sha256"]:
            raise Damaged(f"{STATE} does not have the hash in {SEAL}")
        return _load(folder)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, pickle.UnpicklingError) as bad:
        raise Damaged(f"{type(bad).__name__}: {' '.join(str(bad).split())[:100]}") from bad


def _load(folder: Path) -> dict[str, Any]:
    with torch.serialization.safe_globals(PLAIN_TYPES):
        return torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)


def _as_bytes(table: pa.Table) -> torch.Tensor:
    """Return a table as an Arrow stream, (bytes,) uint8, which is read where it is mapped."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return torch.frombuffer(bytearray(sink.getvalue()), dtype=torch.uint8)


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
