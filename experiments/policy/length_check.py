"""Check that a model's log-probs do not depend on what else is in a batch.

Some rotary position embeddings change their frequencies with the longest sequence of a forward
pass: `dynamic` (NTK-aware scaling) and `longrope` (Ding et al., arXiv 2402.13753). Keys that a
cache already holds keep the old frequencies, and a short response is read differently beside a
long one. Up to the length that the model was pretrained with, the frequencies are constant.
Layers with a state other than keys and values, e.g. linear attention, are not supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.errors import UserError

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
