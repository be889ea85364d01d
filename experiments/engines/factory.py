"""From `engine.name` to engines: one for each policy that writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.engines.base import Engine
from experiments.policy import loading

if TYPE_CHECKING:
    from torch import nn

    from experiments.config.schema import RunConfig
    from experiments.runtime import RankGroup


def written_from(
    config: RunConfig, base: nn.Module, trained: nn.Module, ranks: RankGroup
) -> nn.Module:
    """The module that an engine writes the trained weights from: a copy where it takes no adapter
    or, of shards, always. vLLM takes an adapter's weights as they are computed, one by one.
    """
    adapter = config.engine.name == "hf" and config.model.adapter != "none"
    if adapter or ranks.sharded:
        return ranks.engine_copy(base)
    return trained


def open_engines(
    config: RunConfig,
    model: nn.Module,
    tokenizer: object,
    closing: list[Callable[[], None]] | None = None,
) -> Callable[[nn.Module], Engine]:
    """What makes an engine of a module shaped as `model`; all that share one vLLM share it here.

    `closing` is given what is to be called at the end, before process groups are ended. UserError
    where vLLM is missing, of another release, or does not fit.
    """
    ends = loading.end_tokens(model, tokenizer)
    if config.engine.name == "vllm":
        from experiments.engines.vllm import Host, VLLMEngine

        host = Host(config, model)
        if closing is not None:
            closing.append(host.close)
        return lambda weights: VLLMEngine(host, weights, ends)
    from experiments.engines.hf import HFEngine

    pad, batch_size = tokenizer.pad_token_id, config.engine.batch_size
    return lambda weights: HFEngine(weights, ends, pad, batch_size)
