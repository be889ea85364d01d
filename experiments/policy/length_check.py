"""Check that a model's log-probs do not depend on what else is in a batch.

Some rotary position embeddings change their frequencies with the longest sequence of a forward
pass: `dynamic` (NTK-aware scaling) and `longrope` (Ding et al., arXiv 2402.13753). Keys that a
cache already holds keep the old frequencies, and a short response is read differently beside a
long one. Up to the length that the model was pretrained with, the frequencies are constant.
Layers with a state other than keys and values, e.g. linear attention, are not supported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.config.model_folder import config_file
from experiments.config.resolve_defaults import resolve_defaults
from experiments.errors import UserError
from experiments.gpus import visible_gpus

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from experiments.config.schema import RunConfig


# Models with an embedding for each position, and none beyond the last
LEARNED_POSITIONS = ("gpt2", "gpt_neo", "gpt_bigcode", "opt", "biogpt", "openai-gpt")


def check_lengths(model_config: PreTrainedConfig, config: RunConfig) -> None:
    """Raise UserError if the run's longest sequences would get other log-probs in other batches.

    `config` has its lengths resolved.
    """
    text, path = model_config.get_text_config(), config.model.path
    prompt, turns = config.task.max_prompt_tokens, max(config.task.turns, config.eval_turns)
    assert prompt is not None
    response = config.longest_response(turns)
    if text.model_type in LEARNED_POSITIONS and prompt + response > text.max_position_embeddings:
        raise UserError(
            f"model.path={path}: it has {text.max_position_embeddings} positions; "
            f"task.max_prompt_tokens={prompt} and "
            f"task.max_response_tokens={config.task.max_response_tokens}{of_turns(config)} "
            f"allow {prompt + response} tokens: lower them to at most "
            f"{text.max_position_embeddings} together"
        )
    for kind, limit in rope_limits(text):
        if prompt + response > limit:
            raise UserError(
                f"model.path={path}: its RoPE ({kind}) changes with the length beyond {limit} "
                "tokens, so log-probs would depend on the batch; "
                f"task.max_prompt_tokens={prompt} and "
                f"task.max_response_tokens={config.task.max_response_tokens}{of_turns(config)} "
                f"allow {prompt + response}: lower them to at most {limit} together"
            )
    _check_cache(model_config, path)


def length_warning(given: RunConfig) -> str | None:
    """Warn, without torch, of sequences longer than those that the model was made for.

    Rotary positions go on beyond them, but the model has not seen them. None for learned positions,
    which are refused, and where config.json is not on this machine.
    """
    on_gpu = given.model.device.startswith("cuda") or (
        given.model.device == "auto" and visible_gpus()
    )
    config = resolve_defaults(given, "cuda" if on_gpu else "cpu")
    task, turns = config.task, max(config.task.turns, config.eval_turns)
    most = _positions(config)
    assert task.max_prompt_tokens is not None
    longest = task.max_prompt_tokens + config.longest_response(turns)
    if most is None or longest <= most:
        return None
    return (
        f"model.path={config.model.path}: it was made for at most {most} tokens "
        f"(max_position_embeddings of its config.json); task.max_prompt_tokens="
        f"{task.max_prompt_tokens} and task.max_response_tokens={task.max_response_tokens}"
        f"{of_turns(config)} allow {longest}, and it may write nonsense beyond {most}: lower them "
        f"to at most {most} together"
    )


def _positions(config: RunConfig) -> int | None:
    """Return the most positions that a model on this machine was made for; None if unknown."""
    try:
        file = config_file(config.model.path, config.model.fallback)
        values = json.loads(file.read_text()) if file else {}
        text = values.get("text_config", values)
        most = text["max_position_embeddings"]
        scaling = text.get("rope_parameters") or text.get("rope_scaling") or {}
        if text.get("model_type") in LEARNED_POSITIONS:
            return None
        return max(most, int(_stretched(most, scaling)))
    except (UserError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # loading the model says what is wrong


def _stretched(most: int, scaling: Mapping[str, Any]) -> float:
    """Return how many positions RoPE's scaling stretches `most` to.

    Configs differ in whether `max_position_embeddings` has the factor already, so this may be too
    many: a warning too few.
    """
    return scaling.get("original_max_position_embeddings", most) * scaling.get("factor", 1.0)


def of_turns(config: RunConfig) -> str:
    """Name the keys that lengthen a conversation; "" without one."""
    turns = max(config.task.turns, config.eval_turns)
    if turns == 1:
        return ""
    return (
        f" in {turns} turns, with task.max_observation_tokens={config.task.max_observation_tokens},"
    )


def rope_limits(text_config: Any) -> list[tuple[str, int]]:
    """Return (kind of RoPE, longest sequence with constant frequencies) where there is a limit."""
    given = getattr(text_config, "rope_parameters", None) or {}
    each_layer_type = [value for value in given.values() if isinstance(value, dict)]
    limits = []
    for parameters in each_layer_type or [given]:
        kind = str(parameters.get("rope_type", parameters.get("type", "default")))
        if "dynamic" in kind:  # transformers measures it by this, whatever the original length
            limits.append((kind, text_config.max_position_embeddings))
        elif kind == "longrope":
            limits.append((kind, parameters["original_max_position_embeddings"]))
    return limits


def _check_cache(model_config: PreTrainedConfig, path: str) -> None:
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    kinds = {type(layer) for layer in DynamicCache(config=model_config).layers}
    if other := kinds - {DynamicLayer, DynamicSlidingWindowLayer}:
        raise UserError(
            f"model.path={path}: its cache has layers of "
            f"{', '.join(sorted(kind.__name__ for kind in other))}; take a model whose layers "
            "cache keys and values alone"
        )
