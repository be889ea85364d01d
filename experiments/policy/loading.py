"""Loading a causal language model and its tokenizer: the bundled nano model or any other."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from envs.hub_errors import explain_hub_error
from experiments.config.schema import ModelConfig, RunConfig
from experiments.errors import UserError
from experiments.policy.activation_checkpointing import checkpoint_activations
from experiments.policy.lora import adapted, base_of, beside, is_adapted, with_own_adapter
from experiments.policy.lora import save as save_adapter

ROOT = Path(__file__).resolve().parents[2]
HUB_TIMEOUT_S = 10
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


def read_config(config: ModelConfig) -> object:
    """The model's transformers config, without its weights. Raises UserError."""
    import transformers

    with _explained(config) as where:
        return transformers.AutoConfig.from_pretrained(**where)


def load(config: ModelConfig) -> tuple[nn.Module, object]:
    """The model, in evaluation mode on its device, and its tokenizer. Raises UserError."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with _explained(config) as where:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **where, dtype=DTYPES[config.dtype], attn_implementation="sdpa"
        )
    text = model.config.get_text_config()  # the learner takes logits from the head itself
    if getattr(text, "final_logit_softcapping", None):
        raise UserError(f"model.path={config.path}: models that cap their logits are not supported")
    if {getattr(text, name, None) for name in ("logits_scaling", "logit_scale")} - {None, 1}:
        raise UserError(
            f"model.path={config.path}: models that scale their logits are not supported"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(pick_device(config.device)).eval(), tokenizer


@contextmanager
def _explained(config: ModelConfig) -> Iterator[dict[str, object]]:
    """Where `from_pretrained` finds the model; whatever goes wrong inside becomes one line."""
    source = locate(config.path)
    try:
        cached = not Path(source).is_dir() and not _hub_answers(source)
        yield {"pretrained_model_name_or_path": source, "local_files_only": cached}
    except Exception as error:
        # Broken files raise dozens of kinds, down to the reader of the weights.
        if told := explain_hub_error(error, "model.path", config.path, "model"):
            raise UserError(told) from error
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"model.path={config.path}: cannot be loaded ({type(error).__name__}: {reason}); give "
            "a folder that transformers' save_pretrained wrote, of a causal language model"
        ) from error


@cache
def _hub_answers(name: str) -> bool:
    """Ask once and briefly: transformers would repeat itself for half a minute, file by file.

    Where the hub does not answer, what an earlier run fetched is still good. Raises what the
    client raises where it answers that there is no such model.
    """
    import huggingface_hub

    try:
        huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
    except huggingface_hub.errors.HfHubHTTPError as error:
        if error.response.status_code >= 500 or error.response.status_code == 429:
            return False
        raise
    except Exception:  # of the HTTP library beneath: no route, no name, a proxy's refusal, too slow
        return False
    return True


def end_tokens(model: nn.Module, tokenizer: object) -> set[int]:
    """Every token that ends a response; instruct models name several in generation_config."""
    named = model.generation_config.eos_token_id
    ids = named if isinstance(named, list) else [named]
    return {i for i in [*ids, tokenizer.eos_token_id] if i is not None}


def random_model(config: object, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Random weights in the shape of this transformers config."""
    import transformers

    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
    return model.eval()


def frozen_copy(model: nn.Module, device: str | None = None) -> nn.Module:
    """A copy that never changes, on its device: the reference, or the engine's own weights."""
    moved = {} if device is None else _parameters_on(device, model)
    return copy.deepcopy(model, moved).to(device).requires_grad_(False).eval()


def _parameters_on(device: str, model: nn.Module) -> dict[int, nn.Parameter]:
    """Copies for deepcopy to take, so that none is made where the model is."""
    return {
        id(p): nn.Parameter(p.detach().to(device, copy=True), requires_grad=False)
        for p in model.parameters()
    }


def policy_of(base: nn.Module, config: RunConfig) -> nn.Module:
    """What is trained: the model itself, or an adapter over it. Raises UserError."""
    if config.model.checkpoint_activations:
        checkpoint_activations(base)
    if config.model.adapter == "none":
        return base
    return adapted(base, config.model, config.seed)


def own_copy(model: nn.Module) -> nn.Module:
    """For an engine whose weights are not the last ones: of an adapted model the adapter alone."""
    return with_own_adapter(model) if is_adapted(model) else frozen_copy(model)


def reference_of(model: nn.Module) -> nn.Module:
    """What the model was before training: the base of an adapted one itself, else a copy."""
    return base_of(model).eval() if is_adapted(model) else frozen_copy(model)


def critic_of(model: nn.Module) -> nn.Module:
    """A backbone that begins as the model: a second adapter, or a second copy."""
    if is_adapted(model):
        return beside(model, "critic")
    return frozen_copy(model).requires_grad_(True)


def save(model: nn.Module, written: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """What training has changed, in files: all weights as transformers has them, or the adapter.

    `written` holds the trained weights whole; `state` is `trained_state` of `model`.
    """
    if is_adapted(model):
        save_adapter(model, state, folder)
    else:
        written.save_pretrained(folder)


def fingerprint(model: nn.Module) -> str:
    """16 hex digits over all weights."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
