"""Loading a causal language model and its tokenizer: the bundled nano model or any other."""

from __future__ import annotations

import copy
import hashlib
import logging
from pathlib import Path

import torch
from torch import nn

from envs.hub_errors import explain, is_unreachable
from experiments.config import ModelConfig
from experiments.errors import UserError
from experiments.memory import Shape

ROOT = Path(__file__).resolve().parent.parent
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def pick_device(name: str) -> torch.device:
    """`auto` is the first GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"model.device={name}: no GPU is visible here; use model.device=cpu")
    return torch.device(name)


def locate(path: str) -> str:
    """A folder as given, or in this repository; else a hub id, returned as it is."""
    for folder in (Path(path), ROOT / path):
        if (folder / "config.json").is_file():
            return str(folder)
        if folder.is_dir():
            raise UserError(f"model.path={path}: the folder holds no config.json, so no model")
    if path.count("/") == 1 and not path.startswith((".", "/", "~", "assets")):
        return path
    raise UserError(f"model.path={path}: no such folder; give a saved model's folder or a hub id")


def shape(config: ModelConfig) -> Shape:
    """The model's sizes, from its configuration alone."""
    import transformers

    source = _source(config)
    try:
        known = transformers.AutoConfig.from_pretrained(source)
        with torch.device("meta"):
            return Shape.of(transformers.AutoModelForCausalLM.from_config(known))
    except (OSError, ValueError) as error:
        raise _cannot_load(config, error) from error


def load(config: ModelConfig) -> tuple[nn.Module, object]:
    """The model, in evaluation mode on its device, and its tokenizer."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    source = _source(config)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, dtype=DTYPES[config.dtype], attn_implementation="sdpa"
        )
    except (OSError, ValueError) as error:
        raise _cannot_load(config, error) from error
    if getattr(model.config.get_text_config(), "final_logit_softcapping", None):
        raise UserError(f"model.path={config.path}: models that cap their logits are not supported")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(pick_device(config.device)).eval(), tokenizer


def _source(config: ModelConfig) -> str:
    source = locate(config.path)
    if not Path(source).is_dir():
        _stay_offline_without_network(source)
    return source


def _cannot_load(config: ModelConfig, error: Exception) -> UserError:
    told = explain(error, "model.path", config.path, "model")
    reason = str(error).strip().split("\n")[0]
    return UserError(told or f"model.path={config.path}: cannot be loaded: {reason}")


def _stay_offline_without_network(name: str) -> None:
    """Where the hub does not answer, look among the files fetched before, without a minute of
    retries for each of them.
    """
    import huggingface_hub

    try:
        huggingface_hub.HfApi().model_info(name, timeout=10)
    except Exception as error:
        # all other reasons are found again, and told, when the files are asked for
        if is_unreachable(error):
            huggingface_hub.constants.HF_HUB_OFFLINE = True


def end_tokens(model: nn.Module, tokenizer: object) -> set[int]:
    """Every token that ends a response; instruct models name several in generation_config."""
    named = model.generation_config.eos_token_id
    ids = named if isinstance(named, list) else [named]
    return {i for i in [*ids, tokenizer.eos_token_id] if i is not None}


def frozen_copy(model: nn.Module) -> nn.Module:
    """A copy that never changes: the reference, or the engine's own weights."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def fingerprint(model: nn.Module) -> str:
    """16 hex digits over all weights."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
