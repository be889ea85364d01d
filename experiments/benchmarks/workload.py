"""What the benchmarks of training and generation work on: algorithms, batches, models, prompts."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from algorithms import make
from algorithms.base import Algorithm
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig
from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.config.composition import config_of
from experiments.config.model_folder import (
    BUILT_HERE,
    locate,
    with_model_folder,
)
from experiments.config.schema import ModelConfig, RunConfig
from experiments.engines.base import Engine, Request, Sampling
from experiments.errors import UserError
from experiments.rollout.prompts import encode_prompts
from experiments.run_dir.ledger import Ledger
from experiments.sample import Completion, Origin, PromptedProblem, Sample, rewarded_samples

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from envs.tasks.config import TaskConfig
    from experiments.engines.hf import HFEngine
    from experiments.learner.learner import Learner
    from experiments.policy.policy import Policy
    from experiments.rollout.initial_values import InitialValues

Prompts = Sequence[Sequence[int]]  # token ids
Dtype = Literal["float32", "bfloat16"]
LEARNING_RATE = 1e-7  # hundreds of steps on the same responses keep about the same policy


def algorithms() -> dict[str, Algorithm]:
    """Algorithms by their names in result tables. All options but the rate are defaults."""
    rate = LEARNING_RATE
    return {
        "GRPO without KL": make("grpo", learning_rate=rate, kl_coef=0.0),
        "GRPO": make("grpo", learning_rate=rate),
        "SPO q0=group": make("spo", learning_rate=rate),
        "SPO q0=monte_carlo": make("spo", learning_rate=rate, q0="monte_carlo"),
        "SPO q0=online": make("spo", learning_rate=rate, q0="online"),
        "PPO critic=shared": make("ppo", learning_rate=rate, critic="shared"),
        "PPO critic=separate": make("ppo", learning_rate=rate),
    }


class FreeReference:
    """Reference rewards at no cost: drawing them is not part of a step."""

    def rewards_of(self, prompts: Sequence[PromptedProblem]) -> list[Tensor]:
        import torch

        rewards = [1.0] + [0.0] * (16 - 1)
        return [torch.tensor(rewards, dtype=torch.float64)] * len(prompts)


@dataclass
class Step:
    """A repeatable optimiser step of one algorithm."""

    learner: Learner
    initial_values: InitialValues | None

    def __call__(self, samples: Sequence[Sample], group_size: int) -> dict[str, float]:
        return self.learner.update(samples, group_size, self.initial_values)


def step_of(
    algorithm: Algorithm, policy: Policy, pad: int, copied: bool = True, **train: Any
) -> Step:
    """Make a learner for the policy, or for a copy of it, with `train` settings."""
    from experiments.learner.learner import Learner
    from experiments.rollout.initial_values import InitialValues

    trained = policy.with_model(copy.deepcopy(policy.model)) if copied else policy
    config, needs = replace(config_of([]).train, warmup_steps=0, **train), algorithm.needs
    learner = Learner(trained, pad, algorithm, config, 10**6, Ledger())
    if needs.initial_value == "none":
        return Step(learner, None)
    reference: Any = FreeReference()
    online = needs.initial_value == "online"
    return Step(learner, InitialValues(reference, algorithm.initial_value_beta, online))


def llama_sizes(
    width: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int
) -> dict[str, int]:
    """Settings of transformers' LlamaConfig and its kin."""
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": key_heads}
    return sizes | {"vocab_size": vocabulary}


class BatchSize(NamedTuple):
    """Prompts of a batch, responses to each, their most tokens, and those of random prompts."""

    prompts: int
    responses: int
    max_tokens: int
    prompt_tokens: int = 0

    def __str__(self) -> str:
        return f"{self.prompts} prompts × {self.responses} responses of at most {self.max_tokens}"

    @property
    def tokens(self) -> int:
        """Tokens of a random batch, each prompt counted once."""
        return self.prompts * (self.prompt_tokens + self.responses * self.max_tokens)

    def config(self, **model: Any) -> RunConfig:
        """The configuration of a run with such batches."""
        config = config_of(["eval.kl_samples=0"])
        config.model = replace(config.model, **model)
        config.train.prompts, config.train.group_size = self.prompts, self.responses
        config.task.max_prompt_tokens = self.prompt_tokens
        config.task.max_response_tokens = self.max_tokens
        config.engine.batch_size = self.prompts * self.responses
        return config

    def random_prompts(self, vocabulary: int) -> list[PromptedProblem]:
        """Prompts of random tokens, the same each time."""
        draw = random.Random(0)
        tokens = [_random_tokens(draw, self.prompt_tokens, vocabulary) for _ in range(self.prompts)]
        return [prompted(number, prompt) for number, prompt in enumerate(tokens)]

    def random_samples(self, vocabulary: int) -> list[Sample]:
        """Responses of random tokens of the greatest length, with the log-probs of uniform ones."""
        draw, entropy = random.Random(1), math.log(vocabulary)
        logps, completions = (-entropy,) * self.max_tokens, []
        for _ in range(self.prompts * self.responses):
            tokens = _random_tokens(draw, self.max_tokens, vocabulary)
            completions.append(Completion(tokens, logps, entropy, truncated=True, version=0))
        return _rewarded(self.random_prompts(vocabulary), completions)


def _random_tokens(draw: random.Random, count: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(draw.randrange(3, vocabulary) for _ in range(count))


def prompted(number: int, tokens: Sequence[int]) -> PromptedProblem:
    """A prompt of no problem in particular."""
    return PromptedProblem(Problem(f"p{number}", "", (), ()), tuple(tokens))


def model_config(name: str, dtype: Dtype = "float32") -> ModelConfig:
    """Return a choice of conf/model, a folder, a .gguf file or a hub id. Raises UserError."""
    chosen = with_model_folder([f"model={name}"])
    if "/" in name and len(chosen) == 1:
        chosen = ["model=local", f'model.path="{name}"']
    return replace(config_of(chosen).model, dtype=dtype)


def usable_model(name: str, dtype: Dtype = "float32") -> ModelConfig:
    """Return `model_config`. Raises UserError also for a folder without a model.

    Benchmarks call it before they import torch.
    """
    model = model_config(name, dtype)
    locate(model.path, model.fallback)
    return model


def batch_size(model: ModelConfig, *given: int | None) -> BatchSize:
    """Return the given sizes; for None, fewer and shorter responses where no model is bundled."""
    usual = (16, 8, 64) if model.path in BUILT_HERE else (4, 4, 48)
    return BatchSize(*(u if g is None else g for g, u in zip(given, usual, strict=True)))


@dataclass(frozen=True)
class MiniContests:
    """A model in our own engine, and its prompts, the first problems of MiniContests: a batch's."""

    engine: HFEngine
    tokenizer: PreTrainedTokenizerBase
    task: TaskConfig
    prompted: list[PromptedProblem]
    size: BatchSize

    @staticmethod
    def load(
        model: ModelConfig, size: BatchSize, batches: int = 1, reward: str = "binary"
    ) -> MiniContests:
        """Load them, and the problems of so many batches. Raises UserError if a prompt is too long.

        `reward` is a choice of task.reward.kind.
        """
        from experiments.engines.hf import HFEngine
        from experiments.policy import loading

        policy, tokenizer = loading.load(model)
        count = batches * size.prompts
        kind = f"task.reward.kind={reward}"
        task = task_config(["task=mini", f"task.train_problems={count}", kind])
        task.chat = bool(tokenizer.chat_template)
        opened = open_task(task)
        encoded, too_long = encode_prompts(opened.train, opened, tokenizer, task, model.chat_args)
        if too_long:
            raise UserError(f"{too_long} of {count} prompts are too long for this model")
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


def generation_rate(generate: Callable[[], Sequence[Sequence[int]]]) -> dict[str, float]:
    """Tokens per second of a function that generates responses and returns their tokens."""
    start = time.perf_counter()
    tokens = sum(map(len, generate()))
    return {"generation": tokens / (time.perf_counter() - start)}


def engine_rate(
    engine: Engine, prompts: Prompts, group_size: int, sampling: Sampling, number: int
) -> dict[str, float]:
    """Tokens per second of an engine in one round."""
    arguments = (engine, prompts, group_size, sampling, number)
    return generation_rate(lambda: [each.tokens for each in generate_responses(*arguments)])


def responses(engine: Engine, prompts: Prompts, group_size: int, max_tokens: int) -> list[Sample]:
    """Generate a group for each prompt."""
    completions = generate_responses(engine, prompts, group_size, Sampling(max_tokens))
    return _rewarded([prompted(*each) for each in enumerate(prompts)], completions)


def _rewarded(
    prompts: Sequence[PromptedProblem], completions: Sequence[Completion]
) -> list[Sample]:
    """Samples of as many completions to each prompt, one in four with the reward 1."""
    right = Judgement(Verdict.ACCEPTED, 1, 1, 1, "")
    wrong = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")
    judgements = [wrong if index % 4 else right for index in range(len(completions))]
    owners = [prompt for prompt in prompts for _ in range(len(completions) // len(prompts))]
    origin = Origin("policy", "bench", 1)
    return rewarded_samples(owners, completions, judgements, RewardConfig(), origin)


def padded(rows: Sequence[Sequence[int]], side: Literal["left", "right"]) -> Tensor:
    """`(len(rows), width of the longest)`, padded with -1."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence([torch.tensor(row) for row in rows], True, -1, side)
