"""The workload of the training benchmarks: the same responses and rewards for every algorithm."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from algorithms.base import Algorithm
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.ppo import PPO, PPOConfig
from algorithms.spo import SPO, SPOConfig
from envs.problem import Judgement, Problem, Verdict
from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.config.composition import config_of
from experiments.config.model_folder import BUILT_HERE, with_model_folder
from experiments.config.schema import EvalConfig, ModelConfig, RunConfig, TrainConfig
from experiments.engines.base import Completion, Engine, Sampling
from experiments.errors import UserError
from experiments.rollout.prompts import encode_prompts
from experiments.run_dir.budget import Ledger
from experiments.sample import Origin, PromptedProblem, Sample

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from envs.tasks.config import TaskConfig
    from experiments.engines.hf import HFEngine
    from experiments.learner.learner import Learner
    from experiments.policy.policy import Policy
    from experiments.rollout.initial_values import InitialValues, ReferenceRewards

Prompts = Sequence[Sequence[int]]  # token ids
LEARNING_RATE = 1e-7  # hundreds of steps on the same responses keep about the same policy


def algorithms() -> dict[str, Algorithm]:
    """Algorithms by their names in result tables. All options but the rate are defaults."""
    rate = LEARNING_RATE
    return {
        "GRPO without KL": GRPO(GRPOConfig(learning_rate=rate, kl_coef=0.0), 1.0),
        "GRPO": GRPO(GRPOConfig(learning_rate=rate), 1.0),
        "SPO q0=group": SPO(SPOConfig(learning_rate=rate), 1.0),
        "SPO q0=monte_carlo": SPO(SPOConfig(learning_rate=rate, q0="monte_carlo"), 1.0),
        "SPO q0=online": SPO(SPOConfig(learning_rate=rate, q0="online"), 1.0),
        "PPO critic=shared": PPO(PPOConfig(learning_rate=rate, critic="shared"), 1.0),
        "PPO critic=separate": PPO(PPOConfig(learning_rate=rate), 1.0),
    }


def free_reference() -> ReferenceRewards:
    """Reference rewards at no cost: drawing them is not part of a step."""
    import torch

    from experiments.rollout.initial_values import ReferenceRewards

    class FreeReference(ReferenceRewards):
        def __init__(self) -> None:
            rewards = [1.0] + [0.0] * (SPOConfig().q0_samples - 1)
            self.rewards = torch.tensor(rewards, dtype=torch.float64)

        def rewards_of(self, prompts: Sequence[PromptedProblem]) -> list[Tensor]:
            return [self.rewards] * len(prompts)

    return FreeReference()


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
    from experiments.policy.policy import Policy
    from experiments.rollout.initial_values import InitialValues

    trained = Policy(copy.deepcopy(policy.model)) if copied else policy
    config, needs = TrainConfig(warmup_steps=0, **train), algorithm.needs
    learner = Learner(trained, pad, algorithm, config, 10**6, Ledger())
    if needs.initial_value == "none":
        return Step(learner, None)
    reference, online = free_reference(), needs.initial_value == "online"
    return Step(learner, InitialValues(reference, needs.initial_value_beta, online))


def llama_sizes(
    width: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int
) -> dict[str, int]:
    """Settings of transformers' LlamaConfig and its kin."""
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": key_heads}
    return sizes | {"vocab_size": vocabulary}


@dataclass(frozen=True)
class BatchShape:
    """Sizes of a batch of random tokens, all prompts of one length and all responses of another."""

    prompts: int
    group_size: int
    prompt_tokens: int
    response_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of a batch, each prompt counted once."""
        return self.prompts * (self.prompt_tokens + self.group_size * self.response_tokens)

    def config(self, **model: Any) -> RunConfig:
        """The configuration of a run with such batches."""
        config = RunConfig(None, model=ModelConfig(**model), eval=EvalConfig(kl_samples=0))
        config.train.prompts, config.train.group_size = self.prompts, self.group_size
        config.task.max_prompt_tokens = self.prompt_tokens
        config.task.max_response_tokens = self.response_tokens
        config.engine.batch_size = self.prompts * self.group_size
        return config

    def samples(self, vocabulary: int) -> list[Sample]:
        """Responses with the log-probs of uniform tokens; a quarter has the reward 1."""
        draw = random.Random(0)
        logps = (-math.log(vocabulary),) * self.response_tokens
        samples = []
        for number in range(self.prompts):
            prompt = [draw.randrange(3, vocabulary) for _ in range(self.prompt_tokens)]
            for index in range(self.group_size):
                tokens = tuple(draw.randrange(3, vocabulary) for _ in logps)
                completion = Completion(tokens, logps, math.log(vocabulary), True, 0)
                samples.append(_sample(number, prompt, completion, index % 4 == 0))
        return samples


Dtype = Literal["float32", "bfloat16"]


def model_config(name: str, dtype: Dtype = "float32") -> ModelConfig:
    """Return a choice of conf/model, a folder, a .gguf file or a hub id. Raises UserError."""
    chosen = with_model_folder([f"model={name}"])
    if "/" in name and len(chosen) == 1:
        chosen = ["model=local", f'model.path="{name}"']
    return replace(config_of(chosen).model, dtype=dtype)


class BatchSize(NamedTuple):
    """Prompts of a batch, responses to each, and the most tokens of a response."""

    prompts: int
    responses: int
    max_tokens: int

    def __str__(self) -> str:
        return f"{self.prompts} prompts × {self.responses} responses of at most {self.max_tokens}"


def batch_size(model: ModelConfig, *given: int | None) -> BatchSize:
    """Return the given sizes; for None, fewer and shorter responses where no model is bundled."""
    usual = (16, 8, 64) if model.path in BUILT_HERE else (4, 4, 48)
    return BatchSize(*(u if g is None else g for g, u in zip(given, usual, strict=True)))


@dataclass(frozen=True)
class MiniContests:
    """A model in our own engine, and its prompts for the first problems of MiniContests."""

    engine: HFEngine
    tokenizer: PreTrainedTokenizerBase
    task: TaskConfig
    prompted: list[PromptedProblem]

    @staticmethod
    def load(model: ModelConfig, problems: int) -> MiniContests:
        """Load them. Raises UserError if a prompt is too long."""
        from experiments.engines.hf import HFEngine
        from experiments.policy import loading

        policy, tokenizer = loading.load(model)
        task = task_config(["task=mini", f"task.train_problems={problems}"])
        task.chat = bool(tokenizer.chat_template)
        opened = open_task(task)
        encoded, too_long = encode_prompts(opened.train, opened, tokenizer, task, model.chat_args)
        if too_long:
            raise UserError(f"{too_long} of {problems} prompts have too many tokens of this model")
        eos = loading.end_tokens(policy.model, tokenizer)
        engine = HFEngine(policy, eos, tokenizer.pad_token_id, 4096)
        return MiniContests(engine, tokenizer, task, list(encoded))

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [prompt.tokens for prompt in self.prompted]

    @property
    def ends(self) -> set[int]:
        """The tokens that end a response."""
        return set(self.engine.eos.tolist())


def generate_responses(
    engine: Engine, prompts: Prompts, group_size: int, sampling: Sampling, seed: int
) -> list[Completion]:
    """Generate a group of responses to each prompt, one group after the other."""
    first = [seed * 10**6 + row * 1000 for row in range(len(prompts))]
    seeds = [list(range(start, start + group_size)) for start in first]
    return [each for group in engine.generate(prompts, seeds, sampling) for each in group]


def generation_rate(generate: Callable[[], Sequence[Sequence[int]]]) -> dict[str, float]:
    """Tokens per second of a function that generates responses and returns their tokens."""
    start = time.perf_counter()
    tokens = sum(map(len, generate()))
    return {"generation": tokens / (time.perf_counter() - start)}


def responses(
    engine: Engine, prompts: Prompts, group_size: int, max_tokens: int, seed: int = 0
) -> list[Sample]:
    """Generate a group for each prompt; a quarter of responses, by `seed`, has the reward 1."""
    draw, samples = random.Random(seed), []
    completions = generate_responses(engine, prompts, group_size, Sampling(max_tokens), seed)
    for index, completion in enumerate(completions):
        number = index // group_size
        samples.append(_sample(number, prompts[number], completion, draw.random() < 0.25))
    return samples


def _sample(number: int, prompt: Sequence[int], completion: Completion, right: bool) -> Sample:
    """A judged response with the reward 1 or 0."""
    verdict = Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER
    return Sample(
        prompt=PromptedProblem(Problem(f"p{number}", "", (), ()), tuple(prompt)),
        tokens=completion.tokens,
        logps=completion.logps,
        judgement=Judgement(verdict, int(right), 1, 1, ""),
        reward=float(right),
        truncated=completion.truncated,
        origin=Origin("policy", "bench", 1, completion.version),
    )


def padded(rows: Sequence[Sequence[int]], side: Literal["left", "right"]) -> Tensor:
    """`(len(rows), width of the longest)`, padded with -1."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence([torch.tensor(row) for row in rows], True, -1, side)
