"""Whether the engine writes with the distribution that the learner believes it does.

A stale weight, a temperature that was not applied or a wrong log-prob ends no run: the ratio is off
and training gets worse. So, where both must hold the same weights (at the start, and right after a
sync), the engine writes a few fresh responses and the learner scores them too. In exact arithmetic
the log-probs would be equal; what is left is rounding, far below the bound.

Where the reference is kept it scores them as well: once training has moved the weights, an engine
that still writes with the base (a sync left out, an adapter ignored) is nearer to the base than to
the learner. That tells it also where the weights have moved by less than the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from algorithms.tensors import kl
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.sample import PromptedProblem
from experiments.seeds import seed_for, stream

NEARER = 2  # times: by so much rounding alone does not favour the base
BOUNDS = {"float32": 1e-3, "bfloat16": 2e-2}  # nats; measured means: 1e-6 and 0.002


@dataclass(frozen=True)
class Mismatch:
    """Engine's against learner's log-probs of the same tokens, over the tokens of one check."""

    mean: float  # absolute difference, nats
    max: float
    kl: float  # KL(engine ‖ learner) per token, by k3
    beyond: float  # share of tokens whose difference is above the bound
    bound: float  # nats
    to_base: float = float("nan")  # mean absolute difference to the reference's, where it is kept

    @property
    def warned(self) -> bool:
        """A mean above the bound, or none at all; or far nearer to the base than to the learner."""
        return not self.mean <= self.bound or self.mean > NEARER * self.to_base

    def metrics(self) -> dict[str, float]:
        return {f"mismatch/{name}": value for name, value in asdict(self).items()}


def mismatch(
    engine_logp: torch.Tensor,
    learner_logp: torch.Tensor,
    bound: float,
    base_logp: torch.Tensor | None = None,
) -> Mismatch:
    """All (tokens,), the tokens drawn from the engine. A NaN is beyond every bound."""
    nan = torch.tensor(float("nan"))
    to_base = nan if base_logp is None else (engine_logp - base_logp).abs().mean()
    difference = (engine_logp - learner_logp).abs()
    return Mismatch(
        mean=float(difference.mean()),
        max=float(difference.max()),
        kl=float(kl(engine_logp, learner_logp, "k3").mean()),
        beyond=float((~(difference <= bound)).float().mean()),
        bound=bound,
        to_base=float(to_base),
    )


class LogprobCheck:
    """Checks at the first step, and at the first fresh weights `engine.logprob_check_every` steps later."""

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        learner: Learner,
        prompts: Sequence[PromptedProblem],
    ) -> None:
        self.engine, self.learner, self.prompts = engine, learner, prompts
        self.every, self.samples = config.engine.logprob_check_every, config.engine.logprob_check_samples
        self.bound = config.engine.logprob_check_bound or BOUNDS[config.model.dtype]
        self.sampling = Sampling(config.task.max_response_tokens, config.train.temperature)
        self.seed = config.seed
        self._last: int | None = None

    def due(self, step: int, policy_lag: int) -> bool:
        """Whether to check before `step`; with a lag the two hold different weights rightly."""
        if not self.every or policy_lag:
            return False
        return self._last is None or step - self._last >= self.every

    def state_dict(self) -> dict[str, Any]:
        """When it last checked."""
        return {"last": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As if it had checked then."""
        self._last = state["last"]

    def check(self, step: int) -> Mismatch:
        """Write fresh responses and score them."""
        self._last = step
        drawn = stream(self.seed, "mismatch", step).choices(self.prompts, k=self.samples)
        seeds = [[seed_for(self.seed, "mismatch", step, i)] for i in range(self.samples)]
        groups = self.engine.generate([prompt.tokens for prompt in drawn], seeds, self.sampling)
        completions = [completion for group in groups for completion in group]
        tokens = Tokens.pack(
            [prompt.tokens for prompt in drawn],
            range(self.samples),
            [completion.tokens for completion in completions],
            self.learner.pad,
            self.learner.model.device,
        )
        told = [logp for completion in completions for logp in completion.logps]
        scored = self.learner.logp(tokens)[tokens.mask].cpu()
        base = None
        if self.learner.reference is not None:
            base = self.learner.ref_logp(tokens)[tokens.mask].cpu()
        return mismatch(torch.tensor(told), scored, self.bound, base)

    def summary(self, found: Mismatch) -> str:
        """A line for the log: a warning where the mean difference is above the bound."""
        text = (
            f"log-probs of the {self.engine.name} engine against the learner's: mean difference "
            f"{found.mean:.2g}, max {found.max:.2g}, KL {found.kl:.2g}, "
            f"{found.beyond:.1%} beyond {found.bound:g}"
        )
        if not found.warned:
            return text
        if found.mean > found.to_base:
            text += f", and only {found.to_base:.2g} to the base's"
        return (
            f"WARNING: {text}: the engine does not write with the weights or the temperature that "
            "the learner believes; the ratio of PPO and GRPO is wrong"
        )
