"""Loading a causal language model and its tokenizer: the bundled nano model or any other.

A file in llama.cpp's GGUF format is converted once, into the cache folder: its tensors are
dequantised to float32 and saved beside the tokenizer and chat template that it holds. What
quantisation lost stays lost, so the weights are not those of the model that the file was made from.

Models that would write or learn garbage are refused before their weights are loaded. Some rotary
position embeddings change their frequencies with the longest sequence of a forward pass: `dynamic`
(NTK-aware scaling) and `longrope` (Ding et al., arXiv 2402.13753). Log-probs would depend on what
else is in a batch, and cached keys keep the old frequencies.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from algorithms.logprobs import Float32Head
from envs.caching import cache_root, locked_folder
from envs.messages import explain_hub_error
from experiments.config.preflight import GGUF, locate
from experiments.config.schema import ModelConfig, RunConfig
from experiments.errors import UserError
from experiments.policy.lora import adapted
from experiments.policy.patches import checkpoint_activations
from experiments.policy.policy import Policy, frozen_copy

HUB_TIMEOUT_S = 10
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16")}
# Models with an embedding for each position, and none beyond the last
LEARNED_POSITIONS = ("gpt2", "gpt_neo", "gpt_bigcode", "opt", "biogpt", "openai-gpt")


def pick_device(name: str) -> torch.device:
    """Return the device; `auto` is the first GPU if there is one. Raises UserError."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"model.device={name}: no GPU is visible here; use model.device=cpu")
    return torch.device(name)


def source_of(config: ModelConfig) -> str:
    """Return the folder that holds the model in transformers' format, or its hub id.

    A .gguf file is converted first. Raises UserError, and what transformers raises for a file that
    it cannot read.
    """
    source = locate(config.path, config.fallback)
    return str(converted_folder(Path(source))) if source.endswith(GGUF) else source


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
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    quantised = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = quantised.config
    if hasattr(config, "quantization_config"):  # the saved weights are plain
        del config.quantization_config
    model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


def read_config(config: ModelConfig) -> PreTrainedConfig:
    """Return the model's transformers config, without its weights. Raises UserError."""
    with _explained(config) as where:
        return transformers.AutoConfig.from_pretrained(**where)


def load(config: ModelConfig) -> tuple[Policy, PreTrainedTokenizerBase]:
    """Return `load_policy` and `load_tokenizer`. Raises UserError."""
    tokenizer = load_tokenizer(config)
    return load_policy(config), tokenizer


def load_policy(config: ModelConfig) -> Policy:
    """Return the base policy, in evaluation mode on its device. Raises UserError."""
    with _explained(config) as where:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **where,
            dtype=DTYPES[config.dtype],
            attn_implementation="sdpa",
            # transformers looks for an adapter first, with arguments of its own; without this it
            # asks a hub that does not answer for half a minute.
            adapter_kwargs={"local_files_only": where["local_files_only"]},
        )
    if config.head_dtype == "float32":
        model.get_output_embeddings().__class__ = Float32Head
    text = model.config.get_text_config()  # the learner takes logits from the head itself
    scales = {getattr(text, name, None) for name in ("logits_scaling", "logit_scale")} - {None, 1}
    if scales or getattr(text, "final_logit_softcapping", None):
        raise UserError(f"model.path={config.path}: models that cap or scale logits do not work")
    # transformers' decorator hides the signature of `to`.
    model = model.to(pick_device(config.device))  # type: ignore[arg-type]
    return Policy(model.eval())


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """Return the tokenizer. Raises UserError.

    Without an end token of its own it has the first one of generation_config.json, or of
    config.json. Without padding it pads with the end token.
    """
    with _explained(config) as where:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        if tokenizer.eos_token_id is None:
            ends = [i for i in _configured_ends(where) if 0 <= i < len(tokenizer)]
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends[0]) if ends else None
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer


def _configured_ends(where: dict[str, Any]) -> list[int]:
    """Return the end tokens that the weights will have in `generation_config`."""
    source, cached = where["pretrained_model_name_or_path"], where["local_files_only"]
    try:
        found = transformers.GenerationConfig.from_pretrained(source, local_files_only=cached)
    except OSError:  # no such file: transformers makes one of config.json
        found = transformers.GenerationConfig.from_model_config(
            transformers.AutoConfig.from_pretrained(**where)
        )
    return _as_list(found.eos_token_id)


def _as_list(ids: int | list[int] | None) -> list[int]:
    return ids if isinstance(ids, list) else [] if ids is None else [ids]


@contextmanager
def _explained(config: ModelConfig) -> Iterator[dict[str, Any]]:
    """Yield `from_pretrained`'s arguments; any error in the block becomes a one-line UserError."""
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        source = source_of(config)
        cached = not Path(source).is_dir() and not _hub_answers(source)
        yield {"pretrained_model_name_or_path": source, "local_files_only": cached}
    except UserError:
        raise
    except Exception as error:
        # Broken files raise dozens of exception types, down to the weights' reader.
        if message := explain_hub_error(error, "model.path", config.path, "model"):
            raise UserError(message) from error
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"model.path={config.path}: cannot be loaded ({type(error).__name__}: {reason}); give "
            "a folder with a causal language model written by transformers' save_pretrained"
        ) from error


@cache
def _hub_answers(name: str) -> bool:
    """Whether the hub answers one request; transformers would retry each file for half a minute.

    Without an answer, files cached by an earlier run are used. Raises the client's error if
    the hub answers that there is no such model.
    """
    try:
        huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
    except huggingface_hub.errors.HfHubHTTPError as error:
        if error.response.status_code >= 500 or error.response.status_code == 429:
            return False
        raise
    except Exception:  # the HTTP library's: no route, no name, a proxy's refusal, a timeout
        return False
    return True


def set_up_torch(threads: int) -> None:
    """Set the number of CPU threads, take subnormal numbers for 0, and leave out cuDNN's attention.

    CPUs compute with subnormal numbers many times slower, and gradients can be full of them: SPO
    weights a rejected response by about exp(-1/β), which is 1e-39 at β = 0.011.

    cuDNN builds and keeps a plan for every new shape, and here every generated token and every
    micro-batch has one: on an H200 a token took twice as long, and the process grew by
    145 MB a step.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.backends.cuda.enable_cudnn_sdp(False)


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return every token that ends a response; instruct models have several."""
    ids = {*_as_list(model.generation_config.eos_token_id), tokenizer.eos_token_id}
    return {i for i in ids if i is not None and i >= 0}  # some folders have −1 for none


def trained_policy(base: Policy, config: RunConfig) -> Policy:
    """Return the policy to train: the base itself, or an adapter over it. Raises UserError."""
    if config.model.checkpoint_activations:
        checkpoint_activations(base)
    if config.model.adapter == "none":
        return base
    return adapted(base, config.model, config.seed)


def own_copy(policy: Policy) -> Policy:
    """Return a frozen copy; of an adapted policy it copies the adapter alone."""
    if policy.adapter is None:
        return frozen_copy(policy)
    named = policy.model.named_parameters()
    shared = {id(weight): weight for name, weight in named if ".lora_" not in name}
    return policy.with_model(copy.deepcopy(policy.model, shared).requires_grad_(False))


def load_weights(policy: Policy, folder: str) -> None:
    """Give the policy the weights of algo.dpo_model, of its own architecture. Raises UserError."""
    if not Path(folder).is_dir():
        raise UserError(f"algo.dpo_model={folder}: no such folder; give RUN/checkpoints/final")
    model: Any = policy.model
    given = {"local_files_only": True, "output_loading_info": True}
    try:
        read, facts = type(model).from_pretrained(folder, config=model.config, **given)
        if lacking := sorted(facts["missing_keys"]):
            raise ValueError(f"it lacks {lacking[0]}")
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().split("\n")[0]
        raise UserError(
            f"algo.dpo_model={folder}: not weights of the model in training: {first}"
        ) from error
    model.load_state_dict(read.state_dict())


def reference_of(policy: Policy) -> Policy:
    """Return the policy before training: an adapted one's base itself, else a copy."""
    if policy.adapter is None:
        return frozen_copy(policy)
    policy.adapter.base.model.eval()
    return policy.adapter.base


def critic_backbone(policy: Policy) -> Policy:
    """Return a trainable backbone that begins as the model: a second adapter, or a copy."""
    if adapter := policy.adapter:
        return adapted(adapter.base, adapter.config, adapter.seed, "critic")
    backbone = frozen_copy(policy)
    backbone.model.requires_grad_(True)
    return backbone


def fingerprint(model: nn.Module) -> str:
    """Return 16 hex digits over all weights."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def policy_fingerprint(policy: Policy, tokenizer: PreTrainedTokenizerBase, weights: str) -> str:
    """Return 16 hex digits over all of a policy that decides its responses to a prompt's tokens.

    `weights`: `fingerprint` of its model, which takes seconds for billions of parameters.

    Equal weights answer otherwise with another config (e.g. RoPE's base), other end tokens, or
    another tokenizer, which turns tokens into programs.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)  # some are written in Python
    parts = {
        "weights": weights,
        "config": _without_origin(policy.model.config.to_dict()),
        "ends": sorted(end_tokens(policy.model, tokenizer)),
        "tokenizer": sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str(),
        "special": tokenizer.special_tokens_map,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_origin(config: Any) -> Any:
    """Return a config's values without where it came from and which release wrote it."""
    if not isinstance(config, dict):
        return config
    origin = ("_name_or_path", "transformers_version")
    return {key: _without_origin(value) for key, value in config.items() if key not in origin}


# Refusals


def check_lengths(model_config: PreTrainedConfig, config: RunConfig) -> None:
    """Raise UserError if the run's longest sequences are beyond what the model computes.

    `config` has its lengths resolved. Only layers that cache keys and values are supported.
    """
    task, where = config.task, f"model.path={config.model.path}"
    turns = max(task.turns, config.eval_turns)
    longest = (task.max_prompt_tokens or 0) + config.longest_response(turns)
    text, limits = model_config.get_text_config(), list[tuple[str, int]]()
    if text.model_type in LEARNED_POSITIONS:
        limits.append(("its positions", text.max_position_embeddings))
    given = getattr(text, "rope_parameters", None) or {}
    each_layer_type = [value for value in given.values() if isinstance(value, dict)]
    for parameters in each_layer_type or [given]:
        kind = str(parameters.get("rope_type", parameters.get("type", "default")))
        limited = f"the frequencies of its RoPE ({kind})"
        if "dynamic" in kind:  # transformers measures it by this, whatever the original length
            limits.append((limited, text.max_position_embeddings))
        elif kind == "longrope":
            limits.append((limited, parameters["original_max_position_embeddings"]))
    for kind, limit in limits:
        if longest > limit:
            raise UserError(
                f"{where}: {kind} hold for {limit} tokens; "
                f"task.max_prompt_tokens={task.max_prompt_tokens}, "
                f"task.max_response_tokens={task.max_response_tokens} and {turns} turns allow "
                f"{longest}: lower them to at most {limit} together"
            )
    kinds = {type(layer) for layer in DynamicCache(config=model_config).layers}
    if other := kinds - {DynamicLayer, DynamicSlidingWindowLayer}:
        names = ", ".join(sorted(kind.__name__ for kind in other))
        raise UserError(f"{where}: its cache has layers of {names}; only keys and values work")


def check_tokens(
    tokenizer: PreTrainedTokenizerBase, model_config: PreTrainedConfig, path: str, largest: int
) -> None:
    """Raise UserError if nothing ends a response, or tokens have no embedding.

    `largest`: token of all prompts. Public models have added tokens beyond their embedding that no
    text has (images'), so of these only those are refused that occur.
    """
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"model.path={path}: no token ends a response; name one as eos_token in its "
            "tokenizer_config.json, or its number as eos_token_id in generation_config.json"
        )
    rows = model_config.get_text_config().vocab_size
    used = max(tokenizer.eos_token_id, tokenizer.pad_token_id or 0, largest)
    used = max(used, tokenizer.vocab_size - 1)
    if used >= rows:
        raise UserError(
            f"model.path={path}: its tokenizer has token {used}, and the model has embeddings for "
            f"{rows} (vocab_size of config.json); give the tokenizer of the model's training"
        )
