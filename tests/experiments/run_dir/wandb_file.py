"""Reads W&B's transaction log, `run-ID.wandb`: protocol buffers in LevelDB's log format."""

import json
import struct
from pathlib import Path

BLOCK, HEAD = 32768, 7  # bytes of a block, and of the file's and of each piece's head
FULL, FIRST, LAST = 1, 2, 4


def records(file: Path) -> list:
    """Every record, in order, once W&B's own process has written them all and ended."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()
    data = file.read_bytes()
    assert data[:4] == b":W&B"
    at, found, pieces = HEAD, [], b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:  # the rest of a block, too short for a head
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEAD])
        piece = data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        pieces = piece if kind in (FULL, FIRST) else pieces + piece
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            found.append(record)
    return found


def values(items) -> dict:
    """Of a history, a summary or a configuration; nested keys joined by dots."""
    return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def history(found: list) -> list[dict]:
    return [values(one.history.item) for one in found if one.HasField("history")]


def summary(found: list) -> dict:
    merged = {}
    for one in found:
        if one.HasField("summary"):
            merged |= values(one.summary.update)
    return merged
