"""Check that the engine samples from the distribution that the learner computes.

A stale weight, a temperature that was not applied or a wrong log-prob ends no run: the ratio is off
and training gets worse. So, when both must hold the same weights (at the start, and right after a
sync), the learner scores a few responses of the batch, before it learns from them. In exact
arithmetic the log-probs would be equal; what remains is rounding, far below the bound.

Where the reference is kept, it scores them as well. Once training has moved the weights, an engine
that still samples from the base (a sync left out, an adapter ignored) is nearer to the base than to
the learner. This finds the fault even where the weights have moved by less than the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from algorithms.tensors import kl, masked_sum
from envs.environment import Environment, Submission
from envs.problem import Judgement, Verdict
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Request, Sampling
from experiments.learner.batching import pad_rows
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.rollout.conversations import Awaited, Dialogue, Round, converse
from experiments.rollout.rollouts import response_limit
from experiments.sample import Completion, PromptedProblem, Sample, judged, own_tokens
from experiments.seeds import seed_for, stream

NEARER = 2  # times nearer to the base than rounding alone explains
# nats. Means seen in float32: 1e-6. In bfloat16, at temperature 1: the bundled model 0.002;
# SmolLM2 135M on an H200 0.032 (MBPP) and 0.043 (MiniContests).
BOUNDS = {"float32": 1e-3, "bfloat16": 6e-2}


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


class LogprobCheck:
    """Checks the rollout engine at the first step, and every `engine.logprob_check_every` steps.

    A check waits until the engine holds the learner's weights.
    """

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        learner: Learner,
        prompts: Sequence[PromptedProblem],
    ) -> None:
        self.engine, self.learner, self.prompts = engine, learner, prompts
        self.every = config.engine.logprob_check_every
        self.samples = config.engine.logprob_check_samples
        self.bound = config.engine.logprob_check_bound or BOUNDS[config.model.dtype]
        self.sampling = Sampling(response_limit(config), config.train.temperature)
        self.seed = config.seed
        self._last: int | None = None

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
        if own:
            prompts = [sample.prompt for sample in own]
            responses: list[tuple[Sequence[int], Sequence[float]]]
            responses = [(sample.tokens, sample.logps or ()) for sample in own]
        else:
            prompts, responses = self._generate(step)
        generated = [sample.own for sample in own]
        tokens = Tokens.pack(
            [prompt.tokens for prompt in prompts],
            range(len(prompts)),
            [tokens for tokens, _ in responses],
            self.learner.pad,
            self.learner.model.device,
            generated,
        )
        engine_logps = pad_rows([logps for _, logps in responses], tokens.mask)[tokens.own].cpu()
        learner_logps = self.learner.logp(tokens)[tokens.own].cpu()
        base_logps = None
        if self.learner.reference is not None:
            base_logps = self.learner.ref_logp(tokens)[tokens.own].cpu()
        return mismatch(engine_logps, learner_logps, self.bound, base_logps)

    def _generate(
        self, step: int
    ) -> tuple[list[PromptedProblem], list[tuple[Sequence[int], Sequence[float]]]]:
        prompts = stream(self.seed, "mismatch", step).choices(self.prompts, k=self.samples)
        seeds = [[seed_for(self.seed, "mismatch", step, i)] for i in range(self.samples)]
        request = Request([prompt.tokens for prompt in prompts], seeds, self.sampling)
        groups = self.engine.generate(request)
        return prompts, [(one.tokens, one.logps) for group in groups for one in group]

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
