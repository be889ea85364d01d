"""Refusals of models that would write or learn garbage, before the weights are loaded.

Some rotary position embeddings change their frequencies with the longest sequence of a forward
pass: `dynamic` (NTK-aware scaling) and `longrope` (Ding et al., arXiv 2402.13753). Log-probs would
depend on what else is in a batch, and cached keys keep the old frequencies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig

# Models with an embedding for each position, and none beyond the last
LEARNED_POSITIONS = ("gpt2", "gpt_neo", "gpt_bigcode", "opt", "biogpt", "openai-gpt")


def check_lengths(model_config: PreTrainedConfig, config: RunConfig) -> None:
    """Raise UserError if the run's longest sequences are beyond what the model computes.

    `config` has its lengths resolved. Only layers that cache keys and values are supported.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    task, where = config.task, f"model.path={config.model.path}"
    turns = max(task.turns, config.eval_turns)
    longest = (task.max_prompt_tokens or 0) + config.longest_response(turns)
    for kind, limit in _limits(model_config.get_text_config()):
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


def _limits(text_config: Any) -> Iterator[tuple[str, int]]:
    """Yield (what is limited, longest sequence): learned positions, frequencies of RoPE."""
    if text_config.model_type in LEARNED_POSITIONS:
        yield "its positions", text_config.max_position_embeddings
    given = getattr(text_config, "rope_parameters", None) or {}
    each_layer_type = [value for value in given.values() if isinstance(value, dict)]
    for parameters in each_layer_type or [given]:
        kind = str(parameters.get("rope_type", parameters.get("type", "default")))
        if "dynamic" in kind:  # transformers measures it by this, whatever the original length
            yield f"the frequencies of its RoPE ({kind})", text_config.max_position_embeddings
        elif kind == "longrope":
            limit = parameters["original_max_position_embeddings"]
            yield f"the frequencies of its RoPE ({kind})", limit


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
