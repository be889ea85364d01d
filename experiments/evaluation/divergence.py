"""KL(π_θ ‖ π_ref) of whole responses: how far the trained policy has moved from the base.

The same responses also show whether the engine of the trained weights agrees with the learner.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from algorithms.tensors import kl, masked_sum
from envs.environment import Environment, Submission
from envs.problem import Judgement, Verdict
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Request, Sampling
from experiments.evaluation.logprob_check import Mismatch, mismatch
from experiments.learner.batching import pad_rows
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.rollout.conversations import Awaited, Dialogue, Round, converse
from experiments.rollout.rollouts import response_limit
from experiments.sample import Completion, PromptedProblem, judged, own_tokens
from experiments.seeds import seed_for

# by hidden tests, on which neither a conversation nor its KL depends
NOT_JUDGED = Judgement(Verdict.INFRA_ERROR, 0, 0, 0, "")


@torch.no_grad()
def kl_to_base(
    config: RunConfig,
    step: int,
    prompts: Sequence[PromptedProblem],
    engine: Engine,
    learner: Learner,
    bound: float,
    judge: Environment,
    dialogue: Dialogue | None = None,
) -> tuple[float, Mismatch]:
    """Return the KL in nats a response, and the mismatch of the engine's log-probs.

    The engine generates `eval.kl_samples` fresh responses to each prompt at the training
    temperature, so the measure is the same for every algorithm. The KL of a response is k3 summed
    over its tokens, which on-policy is unbiased for the KL of the sequence; the result is the mean
    over responses. With a `dialogue` a response is a conversation, whose observations are read and
    have no term; `judge` runs its answers on public tests alone. `bound`: see `Mismatch`.
    """
    prompts = list(prompts)
    sampling = Sampling(response_limit(config), config.train.temperature)
    seeds = [
        [seed_for(config.seed, "kl", step, row, i) for i in range(config.eval.kl_samples)]
        for row in range(len(prompts))
    ]
    own: list[list[bool] | None] = []
    if dialogue is None:
        groups = engine.generate(Request([p.tokens for p in prompts], seeds, sampling))
        responses = [completion for group in groups for completion in group]
    else:
        responses, own = _conversations(dialogue, prompts, seeds, engine, sampling, judge)
    tokens = Tokens.pack(
        [prompt.tokens for prompt in prompts],
        [row for row, group in enumerate(seeds) for _ in group],
        [response.tokens for response in responses],
        learner.pad,
        learner.model.device,
        own,
    )
    engine_logps = pad_rows([one.logps for one in responses], tokens.mask)[tokens.own].cpu()
    logp, ref_logp = learner.logp(tokens), learner.ref_logp(tokens)
    learner_logps, base_logps = (logps[tokens.own].cpu() for logps in (logp, ref_logp))
    divergence = float(masked_sum(kl(logp, ref_logp, "k3"), tokens.own).mean())
    return divergence, mismatch(engine_logps, learner_logps, bound, base_logps)


def _conversations(
    dialogue: Dialogue,
    prompts: Sequence[PromptedProblem],
    seeds: Sequence[Sequence[int]],
    engine: Engine,
    sampling: Sampling,
    judge: Environment,
) -> tuple[list[Completion], list[list[bool] | None]]:
    """Return len(seeds[i]) conversations on each prompt, flat, and which tokens are answers'."""

    def answering(asked: Round) -> tuple[list[Completion], Awaited]:
        groups = engine.generate(
            Request(asked.prompts, asked.seeds, sampling, asked.begun, asked.goes_on)
        )
        answers = [answer for group in groups for answer in group]
        shown = [number for number, problem in enumerate(asked.problems) if problem.in_order]
        found = judged(
            [answers[number] for number in shown],
            [asked.problems[number] for number in shown],
            judge,
            dialogue.encoder.tokenizer,
        )
        judgements = [NOT_JUDGED] * len(answers)
        for number, judgement in zip(shown, found, strict=True):
            judgements[number] = judgement
        return answers, lambda: judgements

    def hidden(submissions: Sequence[Submission]) -> Awaited:
        return lambda: [NOT_JUDGED] * len(submissions)

    conversations = converse(
        dialogue, prompts, seeds, answering, hidden, lambda _: None, engine.release_memory
    )
    own = [own_tokens(one.turns) for one in conversations]
    return [one.completion for one in conversations], own
