"""What benchmarks share: measuring in turn, tables, and what they work on.

Ratios are taken within a round, because a machine's load changes between rounds.
"""

from __future__ import annotations

import copy
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from algorithms import make
from algorithms.base import Algorithm
from analysis.rendering import markdown_table
from envs.problem import Judgement, Verdict
from envs.reward import RewardConfig
from envs.tasks import open_task
from envs.tasks.task import TaskConfig, task_config
from experiments.config.composition import config_of
from experiments.config.schema import ModelConfig
from experiments.engines.base import Engine, Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.rollout.prompts import encode_prompts
from experiments.run_dir.ledger import Ledger
from experiments.sample import Completion, Origin, PromptedProblem, Sample, rewarded_samples

ROOT = Path(__file__).resolve().parents[2]
Prompts = Sequence[Sequence[int]]  # token ids
Values = dict[str, list[dict[str, float]]]  # case → for each round: measure → value
LEARNING_RATE = 1e-7  # hundreds of steps on the same responses keep about the same policy


@dataclass
class Options:
    """Options of every benchmark."""

    rounds: PositiveInt = 5  # of measurements; the median counts


@dataclass
class ModelOptions(Options):
    """Options of benchmarks of a model."""

    model: str = "nano"  # of conf/model, a folder, a .gguf file or a hub id
    dtype: str = "float32"  # of the weights


# Measuring


def alternate(
    cases: Mapping[str, Callable[[int], dict[str, float]]], rounds: int, warm_ups: int = 1
) -> Values:
    """Measure all cases in each round, in an order that alternates: none is always first.

    A case is a function of the round's number that returns its values by measure. Warm-up rounds,
    the first ones, do not count.
    """
    values: Values = {name: [] for name in cases}
    for number in range(warm_ups + rounds):
        for name in list(cases)[:: -1 if number % 2 else 1]:
            values[name].append(cases[name](number))
    return {name: all_rounds[warm_ups:] for name, all_rounds in values.items()}


def start_timer(cpu_s: Callable[[], float] = time.process_time) -> Callable[[], dict[str, float]]:
    """Return a function that returns the seconds since now, of the CPU by `cpu_s` and in all."""
    cpu, wall = cpu_s(), time.perf_counter()
    return lambda: {"CPU time": cpu_s() - cpu, "wall time": time.perf_counter() - wall}


def report(title: str, values: Values, unit: str, baseline: str | None = None) -> None:
    """Print median and range of each case and, where there is a baseline, of ratios to it."""
    rows = []
    for case, rounds in values.items():
        for measure in rounds[0]:
            numbers = [each[measure] for each in rounds]
            cells = [_number(statistics.median(numbers), unit)]
            cells += [f"{_number(min(numbers))} to {_number(max(numbers))}", ""]
            if baseline in values and case != baseline:
                pairs = zip(numbers, values[baseline], strict=True)
                ratios = [number / other[measure] for number, other in pairs]
                low, high = min(ratios), max(ratios)
                cells[-1] = f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
            rows.append([case, measure, *cells])
    heading = ["", "measure", "median", "range", f"relative to {baseline}" if baseline else ""]
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    versions = f"torch {version('torch')}, transformers {version('transformers')}"
    print(f"## {title}\n\n{machine}, {versions}\n\n{markdown_table(heading, rows)}\n", flush=True)


def _number(value: float, unit: str = "") -> str:
    """Three significant digits, or a whole number from 100 up, with the unit."""
    return f"{value:,.0f} {unit}".rstrip() if abs(value) >= 100 else f"{value:.3g} {unit}".rstrip()


# Algorithms and optimiser steps


def algorithms() -> dict[str, Algorithm]:
    """Algorithms by their names in result tables. All options but the rate are defaults."""
    rate = LEARNING_RATE
    return {
        "GRPO without KL": make("grpo", learning_rate=rate, kl_coef=0.0),
        "GRPO": make("grpo", learning_rate=rate),
        "SPO q0=group_soft": make("spo", learning_rate=rate, q0="group_soft"),
        "PPO critic=shared": make("ppo", learning_rate=rate, critic="shared"),
        "PPO critic=separate": make("ppo", learning_rate=rate),
    }


def learner_of(
    algorithm: Algorithm, policy: Policy, pad: int, copied: bool = True, **train: Any
) -> Learner:
    """Make a learner for the policy, or for a copy of it, with `train` settings."""
    trained = policy.with_model(copy.deepcopy(policy.model)) if copied else policy
    config = replace(config_of([]).train, warmup_steps=0, **train)
    return Learner(trained, pad, algorithm, config, 10**6, Ledger())


# Models, prompts and responses


class BatchSize(NamedTuple):
    """Prompts of a batch, responses to each, and their most tokens."""

    prompts: int
    responses: int
    max_tokens: int

    def __str__(self) -> str:
        return f"{self.prompts} prompts × {self.responses} responses of at most {self.max_tokens}"


def model_config(name: str, dtype: str = "float32") -> ModelConfig:
    """Return a choice of conf/model, or a folder, .gguf file or hub id with a slash in its name."""
    chosen = ["model=local", f"model.path={name}"] if "/" in name else [f"model={name}"]
    return config_of([*chosen, f"model.dtype={dtype}"]).model


@dataclass(frozen=True)
class MiniContests:
    """A model in our own engine, and its prompts, the first problems of MiniContests: a batch's."""

    engine: HFEngine
    tokenizer: PreTrainedTokenizerBase
    task: TaskConfig
    prompted: list[PromptedProblem]
    size: BatchSize

    @staticmethod
    def load(model: ModelConfig) -> MiniContests:
        """Load them; fewer and shorter responses where the model is not bundled."""
        bundled = str(model.path).startswith("assets/")
        size = BatchSize(16, 8, 64) if bundled else BatchSize(4, 4, 48)
        policy, tokenizer = loading.load(model)
        task = task_config(["task=mini", f"task.train_problems={size.prompts}"])
        task.chat = bool(tokenizer.chat_template)
        opened = open_task(task)
        encoded, _ = encode_prompts(opened.train, opened, tokenizer, task, model.chat_args)
        eos = loading.end_tokens(policy.model, tokenizer)
        engine = HFEngine(policy, eos, tokenizer.pad_token_id, 4096)
        return MiniContests(engine, tokenizer, task, list(encoded), size)

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [prompt.tokens for prompt in self.prompted]

    @property
    def ends(self) -> set[int]:
        """The tokens that end a response."""
        return set(self.engine.eos.tolist())


def seeds_of(prompts: int, group_size: int, number: int) -> list[range]:
    """The seeds of the responses to each prompt, which no other round has."""
    first = [number * 10**6 + prompt * 1000 for prompt in range(prompts)]
    return [range(seed, seed + group_size) for seed in first]


def generate_responses(
    engine: Engine, prompts: Prompts, group_size: int, sampling: Sampling, number: int = 0
) -> list[Completion]:
    """Generate a group of responses to each prompt, one group after the other."""
    seeds = seeds_of(len(prompts), group_size, number)
    return [each for group in engine.generate(Request(prompts, seeds, sampling)) for each in group]


def engine_rate(
    engine: Engine, prompts: Prompts, group_size: int, sampling: Sampling, number: int
) -> dict[str, float]:
    """Tokens per second of an engine in one round."""
    start = time.perf_counter()
    completions = generate_responses(engine, prompts, group_size, sampling, number)
    seconds = time.perf_counter() - start
    return {"generation": sum(len(each.tokens) for each in completions) / seconds}


def rewarded(prompts: Sequence[PromptedProblem], completions: Sequence[Completion]) -> list[Sample]:
    """Samples of as many completions to each prompt, one in four with the reward 1."""
    right = Judgement(Verdict.ACCEPTED, 1, 1, 1, "")
    wrong = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")
    judgements = [wrong if index % 4 else right for index in range(len(completions))]
    owners = [prompt for prompt in prompts for _ in range(len(completions) // len(prompts))]
    origin = Origin("policy", "bench", 1)
    return rewarded_samples(owners, completions, judgements, RewardConfig(), origin)


def padded(rows: Sequence[Sequence[int]], side: str) -> Tensor:
    """`(len(rows), width of the longest)`, padded with -1 on the "left" or "right"."""
    return pad_sequence([torch.tensor(row) for row in rows], True, -1, side)
