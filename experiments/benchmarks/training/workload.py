"""What is measured of a training step: the same responses, the same rewards, every algorithm."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from algorithms.base import Algorithm
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.ppo import PPO, PPOConfig
from algorithms.spo import SPO, SPOConfig
from envs.problem import Judgement, Problem, Verdict
from experiments.config.schema import TrainConfig
from experiments.engines.base import Completion, Engine, Sampling
from experiments.learner.learner import Learner
from experiments.rollout.initial_values import InitialValues
from experiments.run_dir.budget import Ledger
from experiments.sample import Origin, PromptedProblem, Sample

RATE = 1e-7  # so that a hundred steps from the same responses stay steps of the same policy


def algorithms() -> dict[str, Algorithm]:
    """By the names that stand in tables; every option but the learning rate is the default."""
    options = {
        "GRPO without KL": (GRPO, GRPOConfig(kl_coef=0.0)),
        "GRPO": (GRPO, GRPOConfig()),
        "SPO q0=group": (SPO, SPOConfig()),
        "SPO q0=monte_carlo": (SPO, SPOConfig(q0="monte_carlo")),
        "SPO q0=online": (SPO, SPOConfig(q0="online")),
        "PPO critic=shared": (PPO, PPOConfig(critic="shared")),
        "PPO critic=separate": (PPO, PPOConfig()),
    }
    for _, config in options.values():
        config.learning_rate = RATE
    return {name: core(config, 1.0) for name, (core, config) in options.items()}


class Known:
    """Reference rewards that cost nothing: what drawing them costs is no part of a step."""

    def __init__(self, count: int) -> None:
        self.rewards = torch.tensor([1.0] + [0.0] * (count - 1), dtype=torch.float64)

    def of(self, prompts: Sequence[PromptedProblem]) -> list[Tensor]:
        return [self.rewards] * len(prompts)


@dataclass
class Step:
    """One optimiser step of one algorithm, ready to be taken again and again."""

    learner: Learner
    initial_values: InitialValues | None

    def __call__(self, samples: Sequence[Sample], group_size: int) -> dict[str, float]:
        return self.learner.update(samples, group_size, self.initial_values)


def step_of(
    algorithm: Algorithm, model: nn.Module, pad: int, copied: bool = True, **train: Any
) -> Step:
    """A learner over the model, or over a copy of it."""
    config = TrainConfig(warmup_steps=0, **train)
    trained = copy.deepcopy(model) if copied else model
    learner = Learner(trained, pad, algorithm, config, 10**6, Ledger())
    needs, values = algorithm.needs, None
    if needs.initial_value != "none":
        reference = Known(algorithm.config.q0_samples)
        values = InitialValues(reference, needs.initial_value_beta, needs.initial_value == "online")
    return Step(learner, values)


def random_samples(
    vocabulary: int, prompts: int, group_size: int, width: int, length: int
) -> list[Sample]:
    """Responses of random tokens, all of the same length, as likely as a uniform draw."""
    draw, told = random.Random(0), (-math.log(vocabulary),) * length
    samples = []
    for row in range(prompts):
        prompt = tuple(draw.randrange(3, vocabulary) for _ in range(width))
        prompted = PromptedProblem(Problem(f"p{row}", "", (), ()), prompt)
        for number in range(group_size):
            tokens = tuple(draw.randrange(3, vocabulary) for _ in range(length))
            completion = Completion(tokens, told, math.log(vocabulary), True, 0)
            samples.append(paid(prompted, completion, number % 4 == 0))
    return samples


def paid(prompted: PromptedProblem, c: Completion, right: bool) -> Sample:
    """A response as the judge would hand it on, with the reward 1 or 0."""
    verdict = Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER
    judged, origin = (
        Judgement(verdict, int(right), 1, 1, ""),
        Origin("policy", "bench", 1, c.version),
    )
    return Sample(prompted, c.tokens, c.logps, judged, float(right), c.truncated, origin)


def responses(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    max_tokens: int,
    seed: int = 0,
) -> list[Sample]:
    """Groups of fresh responses; a quarter, drawn by `seed`, has the reward 1, the rest 0."""
    draw = random.Random(seed)
    seeds = [
        [seed * 10**6 + row * 1000 + i for i in range(group_size)] for row in range(len(prompts))
    ]
    groups = engine.generate(prompts, seeds, Sampling(max_tokens))
    samples = []
    for row, (prompt, group) in enumerate(zip(prompts, groups, strict=True)):
        prompted = PromptedProblem(Problem(f"p{row}", "", (), ()), tuple(prompt))
        for c in group:
            samples.append(paid(prompted, c, draw.random() < 0.25))
    return samples


class Raw:
    """What a plain trainer cannot do without: forward and backward of the same rows, padded.

    Each row is its prompt and its response, prompts padded on the left and responses on the right;
    logits at the response's positions only; the mean log-prob of its tokens is differentiated.
    """

    def __init__(self, model: nn.Module, pad: int, micro_batch: int, temperature: float) -> None:
        self.model, self.pad = copy.deepcopy(model), pad
        self.micro_batch, self.temperature = micro_batch, temperature

    def __call__(self, samples: Sequence[Sample], group_size: int) -> None:
        self.model.zero_grad(set_to_none=True)
        for start in range(0, len(samples), self.micro_batch):
            self._backward(samples[start : start + self.micro_batch], len(samples))

    def _backward(self, rows: Sequence[Sample], whole: int) -> None:
        width = max(len(row.prompt.tokens) for row in rows)
        time = max(len(row.tokens) for row in rows)
        left = [[self.pad] * (width - len(r.prompt.tokens)) + [*r.prompt.tokens] for r in rows]
        right = [[*r.tokens] + [self.pad] * (time - len(r.tokens)) for r in rows]
        seen = [
            [0] * (width - len(r.prompt.tokens))
            + [1] * (len(r.prompt.tokens) + len(r.tokens))
            + [0] * (time - len(r.tokens))
            for r in rows
        ]
        device = self.model.device
        seen = torch.tensor(seen, device=device)
        ids = torch.cat([torch.tensor(left), torch.tensor(right)], 1).to(device)
        logits = self.model(
            input_ids=ids,
            attention_mask=seen,
            position_ids=(seen.cumsum(-1) - 1).clamp(min=0),
            logits_to_keep=time + 1,
        ).logits[:, :-1]
        logp = (logits.float() / self.temperature).log_softmax(-1)
        chosen = logp.gather(-1, ids[:, width:].unsqueeze(-1)).squeeze(-1)
        mask = seen[:, width:]
        (-(chosen * mask).sum(-1) / mask.sum(-1)).sum().div(whole).backward()
