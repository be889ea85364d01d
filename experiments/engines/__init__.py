"""Engines: they generate responses with a policy's weights, and are synced with new ones.

The room knows policies. It must not know the learner, rewards or how a run is distributed.
"""

from __future__ import annotations

from collections.abc import Callable

from transformers import PreTrainedTokenizerBase

from experiments.config.schema import RunConfig
from experiments.engines.base import Engine
from experiments.errors import UserError
from experiments.policy import loading
from experiments.policy.patches import can_override_attention
from experiments.policy.policy import Policy


def open_engines(
    config: RunConfig,
    policy: Policy,
    tokenizer: PreTrainedTokenizerBase,
    closing: list[Callable[[], None]] | None = None,
) -> Callable[[Policy], Engine]:
    """Return a function that makes an engine of a policy shaped like `policy`.

    All vLLM engines made by it share one instance. Functions to call at the end, before process
    groups are destroyed, are appended to `closing`. Raises UserError if vLLM is missing, of another
    release, or does not fit.
    """
    ends = loading.end_tokens(policy.model, tokenizer)
    if config.engine.name == "vllm":
        from experiments.engines.vllm import Host, VLLMEngine

        host = Host(config, policy)
        if closing is not None:
            closing.append(host.close)
        return lambda policy: VLLMEngine(host, policy, ends)
    from experiments.engines.hf import HFEngine

    static, rope = config.engine.static_cache, getattr(policy.model.config, "rope_parameters", None)
    # The frequencies of these look at the positions, which a captured step cannot do.
    moves = str((rope or {}).get("rope_type")) in ("dynamic", "longrope")
    if static and (moves or not can_override_attention(policy.model)):
        raise UserError(
            f"engine.static_cache=true: model.path={config.model.path} has attention or rotary "
            "embeddings that change with the step; use engine.static_cache=false"
        )
    given = tokenizer.pad_token_id, config.engine.batch_size, static
    return lambda policy: HFEngine(policy, ends, *given)
