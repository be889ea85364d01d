"""How far the trained policy has moved from the base: KL(π_θ ‖ π_ref) of whole responses.

The same responses tell whether the engine of the trained weights writes as the learner believes.
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
    """Nats a response, at the training temperature: the same measure for every algorithm; and the
    engine's log-probs of these responses against the learner's.

    `eval.kl_samples` fresh responses of the trained weights to each prompt, k3 summed over their
    tokens, which on-policy is unbiased for the KL of the sequence; the mean over responses.
    """
    prompts = list(prompts)
    sampling = Sampling(config.task.max_response_tokens, config.train.temperature)
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
    told = torch.tensor([logp for group in groups for one in group for logp in one.logps])
    logp, ref_logp = learner.logp(tokens), learner.ref_logp(tokens)
    scored, base = (of[tokens.mask].cpu() for of in (logp, ref_logp))
    moved = float(masked_sum(kl(logp, ref_logp, "k3"), tokens.mask).mean())
    return moved, mismatch(told, scored, bound, base)
