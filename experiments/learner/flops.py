"""Floating-point operations of a learner's passes, charged to the budget as they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.pytorch_utils import Conv1D

from experiments.learner.batching import Tokens
from experiments.learner.modules import Modules
from experiments.policy.policy import Policy
from experiments.run_dir.flops import UNKNOWN, ModelFlops, Text
from experiments.run_dir.ledger import Ledger

MATRICES = (nn.Linear, Conv1D)  # each token meets all of their weights; GPT-2 has the second
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # keys of transformers' configs


class PassCosts:
    """Charges passes over whole batches; every rank knows all of a batch, and rank 0 is charged."""

    def __init__(self, modules: Modules, ledger: Ledger) -> None:
        policy, self.ledger, self.modules = modules.policy, ledger, modules
        self.policy = self.learned = model_flops(policy.model)  # without and with gradient
        # The initial policy has no adapter; moving references and averages have one.
        self.initial = model_flops(policy.adapter.base.model) if policy.adapter else self.policy
        self.critic = critic_flops(modules.critic.backbone if modules.critic else policy)
        if modules.value_head is not None:
            both, value = self.policy, self.critic.head
            self.learned = replace(
                both, head=both.head + value, trained_head=both.trained_head + value
            )

    def scored(self, tokens: Tokens, policy: Policy) -> None:
        """Charge a pass for log-probs with this policy's weights."""
        model = self.initial if policy is self.modules.reference else self.policy
        self.ledger.charge_flops(model.forward(texts_of(tokens)))

    def valued(self, tokens: Tokens) -> None:
        """Charge a pass for the critic's values, without gradient."""
        self.ledger.charge_flops(self.critic.forward(texts_of(tokens)))

    def trained(self, tokens: Tokens) -> None:
        """Charge a pass of the policy, forward and backward."""
        self._charge_learning(self.learned, tokens)

    def critic_trained(self, tokens: Tokens) -> None:
        """Charge a pass of a separate critic, forward and backward; a shared one has none."""
        if self.modules.critic is not None:
            self._charge_learning(self.critic, tokens)

    def _charge_learning(self, model: ModelFlops, tokens: Tokens) -> None:
        texts = texts_of(tokens)
        self.ledger.charge_flops(model.forward(texts) + model.backward(texts))


def texts_of(tokens: Tokens) -> list[Text]:
    """Return the lengths of each prompt that has responses, and of these."""
    prompts, lengths = tokens.prompt_mask.sum(-1).tolist(), tokens.mask.sum(-1).tolist()
    responses: dict[int, list[int]] = {}
    for prompt, length in zip(tokens.prompt_of.tolist(), lengths, strict=True):
        responses.setdefault(prompt, []).append(length)
    return [Text(prompts[prompt], group) for prompt, group in responses.items()]


def model_flops(model: PreTrainedModel) -> ModelFlops:
    """Return the shape of a causal model, with its adapter if it has one.

    UNKNOWN where a token does not meet every weight or attention is of another kind: mixtures of
    experts, compressed keys and values (MLA), layers with a state, models that read images.
    """
    head = model.get_output_embeddings()
    layers = [m for m in model.base_model.modules() if isinstance(m, MATRICES) and m is not head]
    if not _is_counted(model):
        return UNKNOWN
    return ModelFlops(
        blocks=sum(layer.weight.numel() for layer in layers),
        head=head.weight.numel(),
        trained_blocks=sum(layer.weight.numel() for layer in layers if layer.weight.requires_grad),
        trained_head=head.weight.numel() if head.weight.requires_grad else 0,
        attention=_attention(model.config),
    )


def critic_flops(backbone: Policy) -> ModelFlops:
    """Return the shape of a critic: a backbone with a scalar head in place of the output layer."""
    width = backbone.model.config.get_text_config().hidden_size
    return replace(model_flops(backbone.model), head=width, trained_head=width)


def _attention(config: Any) -> tuple[tuple[int, int | None], ...]:
    """Return heads × head width and the window of each layer."""
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    layers = DynamicCache(config=config).layers
    return tuple((width, getattr(layer, "sliding_window", None)) for layer in layers)


def _is_counted(model: PreTrainedModel) -> bool:
    config: Any = model.config
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    if (
        config.get_text_config() is not config
        or getattr(config, "kv_lora_rank", None)
        or any((getattr(config, name, None) or 0) > 1 for name in EXPERTS)
        or kinds - {DynamicLayer, DynamicSlidingWindowLayer}
    ):
        return False
    modules = [m for m in model.base_model.modules() if isinstance(m, (*MATRICES, nn.Embedding))]
    known = {id(parameter) for m in modules for parameter in m.parameters(recurse=False)}
    return all(p.dim() < 2 or id(p) in known for p in model.base_model.parameters())
