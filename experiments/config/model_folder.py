"""Where a model's files are, and whether they can be a causal language model: without torch."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
BUILT_HERE = {"assets/nano": "make nano", "assets/nano_5m": "make nano size=5m"}
WEIGHTS = ("*.safetensors", "*.bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def locate(path: str) -> str:
    """Return the model's folder, as given or in this repository, or a hub id unchanged.

    Raises UserError.
    """
    for folder in (Path(path), ROOT / path):
        if (folder / "config.json").is_file():
            return str(folder)
        if folder.is_dir():
            raise UserError(
                f"model.path={path}: no config.json in this folder; give a model's folder"
            )
    if path.count("/") == 1 and not path.startswith((".", "/", "~", "assets")):
        return path
    made_by = BUILT_HERE.get(path)
    cure = f"build it with `{made_by}`" if made_by else "give a saved model's folder or a hub id"
    raise UserError(f"model.path={path}: no such folder; {cure}")


def weight_bytes(path: str) -> int | None:
    """Return the size of a local model's weights; None for a hub id.

    Raises UserError if the folder cannot be a saved causal language model.
    """
    folder = Path(locate(path))
    if not folder.is_dir():
        return None
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text())
        if not isinstance(config, dict) or "model_type" not in config:
            raise ValueError("it names no model_type")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"model.path={path}: {file.name} cannot be used ({reason}); give a folder written by "
            "transformers' save_pretrained"
        ) from error
    weights = [found for pattern in WEIGHTS for found in folder.glob(pattern)]
    if not weights:
        raise UserError(f"model.path={path}: no weights in this folder ({' or '.join(WEIGHTS)})")
    if not any((folder / name).exists() for name in TOKENIZERS):
        raise UserError(
            f"model.path={path}: no tokenizer in this folder; save one beside the weights with "
            "tokenizer.save_pretrained"
        )
    return sum(found.stat().st_size for found in weights)
