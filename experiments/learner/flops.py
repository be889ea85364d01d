"""Floating-point operations of a learner's passes, charged to the budget as they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.policy.model_flops import critic_flops, model_flops
from experiments.run_dir.flops import ModelFlops, Text

if TYPE_CHECKING:
    from experiments.learner.forward import Tokens
    from experiments.learner.modules import Modules
    from experiments.policy.policy import Policy
    from experiments.run_dir.ledger import Ledger


class PassCosts:
    """Charges passes over whole batches; every rank knows all of a batch, and rank 0 is charged."""

    def __init__(self, modules: Modules, ledger: Ledger) -> None:
        policy = modules.policy
        self.ledger, self.policy = ledger, model_flops(policy.model)
        self.learned = self.policy  # in passes with gradient
        # The initial policy has no adapter; moving references and averages have one, like the
        # policy, and their passes have no gradient.
        base = policy.adapter.base if policy.adapter else policy
        self.initial, self._initial_policy = model_flops(base.model), modules.reference
        self.shared_critic = modules.value_head is not None
        self.critic: ModelFlops | None = None
        if modules.critic is not None:
            self.critic = critic_flops(modules.critic.backbone)
        elif modules.value_head is not None:
            self.critic = critic_flops(policy)
            self.learned = replace(
                self.policy,
                head=self.policy.head + self.critic.head,
                trained_head=self.policy.trained_head + self.critic.trained_head,
            )

    def scored(self, tokens: Tokens, policy: Policy) -> None:
        """Charge a pass for log-probs with this policy's weights."""
        model = self.initial if policy is self._initial_policy else self.policy
        self.ledger.charge_flops(model.forward(texts_of(tokens)))

    def valued(self, tokens: Tokens) -> None:
        """Charge a pass for the critic's values, without gradient."""
        assert self.critic is not None
        self.ledger.charge_flops(self.critic.forward(texts_of(tokens)))

    def trained(self, tokens: Tokens) -> None:
        """Charge a pass of the policy, forward and backward."""
        self._charge_learning(self.learned, tokens)

    def critic_trained(self, tokens: Tokens) -> None:
        """Charge a pass of a separate critic, forward and backward; a shared one has none."""
        if self.critic is not None and not self.shared_critic:
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
