"""Check that the engine samples from the distribution that the learner computes.

A stale weight, a temperature that was not applied or a wrong log-prob ends no run: the ratio is off
and training gets worse. So, when both must hold the same weights (at the start, and right after a
sync), the learner scores a few responses of the batch, before it learns from them. In exact
arithmetic the log-probs would be equal; what remains is rounding, far below the bound.

Where the reference is kept, it scores them as well. Once training has moved the weights, an engine
that still samples from the base (a sync left out, an adapter ignored) is nearer to the base than to
the learner. This finds the fault even where the weights have moved by less than the bound.

At evaluations the learner scores fresh responses of the trained weights, for their KL to the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from algorithms.tensors import kl, masked_sum
from envs.problem import Environment, Judgement, Submission, Verdict
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Request, Sampling
from experiments.learner.batching import Tokens, pad_rows
from experiments.learner.learner import Learner
from experiments.rollout.generate import Responder
from experiments.sample import Origin, PromptedProblem, Sample, seed_for, stream

NEARER = 2  # times nearer to the base than rounding alone explains
# nats. Means seen in float32: 1e-6. In bfloat16, at temperature 1: the bundled model 0.002;
# SmolLM2 135M on an H200 0.032 (MBPP) and 0.043 (MiniContests). float16 rounds an eighth as much:
# the bundled model on the same texts 0.0063 in bfloat16, 0.0009 in float16.
BOUNDS = {"float32": 1e-3, "bfloat16": 6e-2, "float16": 1e-2}


@dataclass(frozen=True)
class Mismatch:
    """The engine's log-probs against the learner's, over the tokens of one check."""

    mean: float  # absolute difference, nats
    max: float
    kl: float  # KL(engine ‖ learner) per token, by k3
    beyond: float  # share of tokens whose difference is above the bound
    bound: float  # nats
    to_base: float = float("nan")  # mean absolute difference to the reference; NaN: it is not kept

    @property
    def warned(self) -> bool:
        """Whether the mean is NaN or above the bound, or the base far nearer than the learner."""
        return not self.mean <= self.bound or self.mean > NEARER * self.to_base

    def metrics(self) -> dict[str, float]:
        return {f"mismatch/{name}": value for name, value in asdict(self).items()}


def mismatch(
    engine_logp: torch.Tensor,
    learner_logp: torch.Tensor,
    bound: float,
    base_logp: torch.Tensor | None = None,
) -> Mismatch:
    """Compare log-probs of shape (tokens,); the engine drew the tokens. NaN exceeds every bound."""
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


# Tokens of a response, the engine's log-probs, and whether each is its own; None: all are
Scored = tuple[Sequence[int], Sequence[float], list[bool] | None]


@dataclass
class LogprobCheck:
    """Checks the rollout engine at the first step, and every `engine.logprob_check_every` steps.

    A check waits until the engine holds the learner's weights.
    """

    config: RunConfig
    engine: Engine
    learner: Learner
    prompts: Sequence[PromptedProblem]

    def __post_init__(self) -> None:
        config, settings = self.config, self.config.engine
        self.every, self.samples = settings.logprob_check_every, settings.logprob_check_samples
        self.bound = settings.logprob_check_bound or BOUNDS[config.model.dtype]
        self.sampling = Sampling(config.longest_response(1), config.train.temperature)
        self.seed = config.seed
        self._last: int | None = None
        self.reported = False  # in a line of the log

    def due(self, step: int, policy_lag: int) -> bool:
        """Whether to check before `step`. With a lag, engine and learner rightly differ."""
        if not self.every or policy_lag:
            return False
        return self._last is None or step - self._last >= self.every

    def state_dict(self) -> dict[str, Any]:
        """Return the step of the last check."""
        return {"last": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the step of the last check."""
        self._last = state["last"]

    def check(self, step: int, samples: Sequence[Sample] = ()) -> Mismatch:
        """Score responses with the learner, and compare.

        `samples`: the batch of `step`, which the learner has not learned from. If the engine
        generated none of them, as with offline programs alone, it generates some now.
        """
        self._last = step
        version = self.learner.policy.version
        own = [sample for sample in samples if sample.fresh and sample.origin.version == version]
        own = own[:: max(1, len(own) // self.samples)][: self.samples]  # of all groups
        prompts = [sample.prompt for sample in own]
        responses: list[Scored] = [(s.tokens, s.logps or (), s.own) for s in own]
        if not own:
            prompts = stream(self.seed, "mismatch", step).choices(self.prompts, k=self.samples)
            seeds = [[seed_for(self.seed, "mismatch", step, i)] for i in range(self.samples)]
            request = Request([prompt.tokens for prompt in prompts], seeds, self.sampling)
            groups = self.engine.generate(request)
            responses = [(one.tokens, one.logps, None) for group in groups for one in group]
        tokens, engine_logp = _packed(self.learner, prompts, range(len(prompts)), responses)
        learner_logp, base_logp = self.learner.logp(tokens)[tokens.own].cpu(), None
        if self.learner.reference is not None:
            base_logp = self.learner.ref_logp(tokens)[tokens.own].cpu()
        return mismatch(engine_logp, learner_logp, self.bound, base_logp)

    def news(self, when: str, mismatch: Mismatch) -> list[str]:
        """Return the line for the log of the first check; later a line where it is a warning."""
        first, self.reported = not self.reported, True
        return [f"{when}: {self.summary(mismatch)}"] * (first or mismatch.warned)

    def summary(self, mismatch: Mismatch) -> str:
        """Return a line for the log, a warning if the mismatch is beyond rounding."""
        text = (
            f"log-probs of the {self.engine.name} engine against the learner's: mean difference "
            f"{mismatch.mean:.2g}, max {mismatch.max:.2g}, KL {mismatch.kl:.2g}, "
            f"{mismatch.beyond:.1%} beyond {mismatch.bound:g}"
        )
        if not mismatch.warned:
            return text
        if mismatch.mean > mismatch.to_base:
            text += f"; only {mismatch.to_base:.2g} against the base model's"
        return (
            f"WARNING: {text}: the engine does not sample with the learner's weights or "
            "temperature; the ratio of PPO and GRPO is wrong"
        )


# by hidden tests, on which neither a conversation nor its KL depends
NOT_JUDGED = Judgement(Verdict.INFRA_ERROR, 0, 0, 0, "")


class PublicTestsOnly:
    """A judge of public tests alone: hidden tests change neither a conversation nor its KL."""

    def __init__(self, judge: Environment) -> None:
        self.judge_public, self.version, self.stats = judge.judge, judge.version, judge.stats

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Return the judgements by public tests, and NOT_JUDGED for the others."""
        public = [one for one in submissions if one.problem.in_order]
        judged = iter(self.judge_public(public) if public else [])
        return [next(judged) if one.problem.in_order else NOT_JUDGED for one in submissions]


@torch.no_grad()
def kl_to_base(
    step: int,
    samples: int,
    prompts: Sequence[PromptedProblem],
    responder: Responder,
    check: LogprobCheck,
) -> tuple[float, Mismatch]:
    """Return the KL in nats a response, and the mismatch of the engine's log-probs.

    The engine of `responder` generates `samples` fresh responses to each prompt at the training
    temperature, so the measure is the same for every algorithm. The KL of a response is k3 summed
    over its tokens, which on-policy is unbiased for the KL of the sequence; the result is the mean
    over responses. In conversations observations are read and have no term.
    """
    prompts, learner = list(prompts), check.learner
    seeds = [
        [seed_for(check.seed, "kl", step, row, i) for i in range(samples)]
        for row in range(len(prompts))
    ]
    judge = PublicTestsOnly(responder.judge)
    responder = replace(responder, judge=judge, overlap=False)
    _, generated = responder.respond(prompts, seeds, check.sampling, Origin("policy", step=step))
    rows = [row for row, group in enumerate(seeds) for _ in group]
    responses: list[Scored] = [(s.tokens, s.logps or (), s.own) for s in generated]
    tokens, engine_logp = _packed(learner, prompts, rows, responses)
    logp, ref_logp = learner.logp(tokens), learner.ref_logp(tokens)
    divergence = float(masked_sum(kl(logp, ref_logp, "k3"), tokens.own).mean())
    learner_logp, base_logp = (each[tokens.own].cpu() for each in (logp, ref_logp))
    return divergence, mismatch(engine_logp, learner_logp, check.bound, base_logp)


def _packed(
    learner: Learner,
    prompts: Sequence[PromptedProblem],
    prompt_of: Sequence[int],
    responses: Sequence[Scored],
) -> tuple[Tokens, torch.Tensor]:
    """Return responses for the learner, and the engine's log-probs of their own tokens."""
    texts = [prompt.tokens for prompt in prompts]
    rows, logps, own = zip(*responses, strict=True)
    pad, device = learner.pad, learner.model.device
    tokens = Tokens.pack(texts, prompt_of, rows, pad, device, own)
    return tokens, pad_rows(logps, tokens.mask)[tokens.own].cpu()
