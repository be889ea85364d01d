"""Models in GGUF files, the format of llama.cpp, as folders that transformers loads.

A file is converted once, into the cache folder: its tensors are dequantised to float32 and saved
beside the tokenizer and chat template that it holds. What quantisation lost stays lost, so the
weights are not those of the model that the file was made from.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envs.cache_folder import cache_root, locked_folder
from experiments.errors import UserError, is_full
from experiments.run_dir.activity import Activity

READ_BYTES = 1 << 20


def converted_folder(file: Path, activity: Activity | None = None) -> Path:
    """Return the folder of a GGUF file's model, converted now if it was not before.

    `activity` shows the conversion. Raises UserError if the gguf package is missing or the disk is
    full, and what transformers raises for a file that it cannot read.
    """
    folder = cache_root() / "models" / f"{file.stem}-{_digest(file)}"
    activity = activity or Activity()
    if (folder / "config.json").is_file():
        return folder
    with (
        activity.phase("converting the model"),  # or waiting for another process that does
        locked_folder(folder.with_name(f"{folder.name}.lock")),
    ):
        if not (folder / "config.json").is_file():
            for left in folder.parent.glob(f"{glob.escape(folder.name)}.*.tmp"):
                shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
            _convert_atomically(file, folder, activity)
    return folder


def _convert_atomically(file: Path, folder: Path, activity: Activity) -> None:
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        _convert(file, partial, activity)
        partial.replace(folder)
    except Exception as error:
        if not is_full(error):
            raise
        raise UserError(
            f"the disk is full at {folder.parent}, so {file.name} could not be converted; free "
            "some of it, or set SPO_BENCH_CACHE to a folder elsewhere"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _convert(file: Path, folder: Path, activity: Activity) -> None:
    """Write the model and its tokenizer as transformers saves them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    print(f"converting {file} once, into {folder.parent}", file=sys.stderr)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    with _counted_tensors(activity):
        quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = quantised.config
    if hasattr(config, "quantization_config"):  # the saved weights are plain
        del config.quantization_config
    model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _counted_tensors(activity: Activity) -> Iterator[None]:
    """Count tensors in `activity`, in place of a bar that writes over the display or a log file."""
    from transformers import modeling_gguf_pytorch_utils as reader

    def counted(tensors: Sequence[Any], **_: Any) -> Iterator[Any]:
        activity.expect(len(tensors), "tensors")
        for tensor in tensors:
            yield tensor
            activity.advance(1)

    bar, reader.tqdm = reader.tqdm, counted
    try:
        yield
    finally:
        reader.tqdm = bar


def _digest(file: Path) -> str:
    """16 hex digits of the file's content."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()[:16]
