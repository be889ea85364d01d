"""KL(π_θ ‖ π_ref) of whole responses: how far the trained policy has moved from the base.

The same responses also show whether the engine of the trained weights agrees with the learner.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from algorithms.tensors import kl, masked_sum
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.evaluation.logprob_check import Mismatch, mismatch
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.rollout.rollouts import response_limit
from experiments.sample import PromptedProblem
from experiments.seeds import seed_for


@torch.no_grad()
def kl_to_base(
    config: RunConfig,
    step: int,
    prompts: Sequence[PromptedProblem],
    engine: Engine,
    learner: Learner,
    bound: float,
) -> tuple[float, Mismatch]:
    """Return the KL in nats a response, and the mismatch of the engine's log-probs.

    The engine generates `eval.kl_samples` fresh responses to each prompt at the training
    temperature, so the measure is the same for every algorithm. The KL of a response is k3 summed
    over its tokens, which on-policy is unbiased for the KL of the sequence; the result is the mean
    over responses. `bound`: see `Mismatch`.
    """
    prompts = list(prompts)
    sampling = Sampling(response_limit(config), config.train.temperature)
    seeds = [
        [seed_for(config.seed, "kl", step, row, i) for i in range(config.eval.kl_samples)]
        for row in range(len(prompts))
    ]
    groups = engine.generate([p.tokens for p in prompts], seeds, sampling)
    tokens = Tokens.pack(
        [prompt.tokens for prompt in prompts],
        [row for row, group in enumerate(groups) for _ in group],
        [completion.tokens for group in groups for completion in group],
        learner.pad,
        learner.model.device,
    )
    engine_logps = torch.tensor([logp for group in groups for one in group for logp in one.logps])
    logp, ref_logp = learner.logp(tokens), learner.ref_logp(tokens)
    learner_logps, base_logps = (logps[tokens.mask].cpu() for logps in (logp, ref_logp))
    divergence = float(masked_sum(kl(logp, ref_logp, "k3"), tokens.mask).mean())
    return divergence, mismatch(engine_logps, learner_logps, bound, base_logps)
