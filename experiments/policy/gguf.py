"""Models in GGUF files, the format of llama.cpp, as folders that transformers loads.

A file is converted once, into the cache folder: its tensors are dequantised to float32 and saved
beside the tokenizer and chat template that it holds. What quantisation lost stays lost, so the
weights are not those of the model that the file was made from.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from envs.caching import cache_root, locked_folder


def converted_folder(file: Path) -> Path:
    """Return the folder of a GGUF file's model, converted now if it was not before.

    Raises what transformers raises for a file that it cannot read.
    """
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()[:16]
    folder = cache_root() / "models" / f"{file.stem}-{digest}"
    partial = folder.with_name(f"{folder.name}.tmp")
    with locked_folder(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "config.json").is_file():
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            _convert(file, partial)
            partial.replace(folder)
    return folder


def _convert(file: Path, folder: Path) -> None:
    """Write the model and its tokenizer as transformers saves them."""
    print(f"converting {file} once, into {folder.parent}", file=sys.stderr)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = quantised.config
    if hasattr(config, "quantization_config"):  # the saved weights are plain
        del config.quantization_config
    model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
