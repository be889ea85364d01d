"""The types of a run's configuration. Keys, defaults and meanings are in conf/.

Annotations give the allowed values; the options of an algorithm are in its own file. An unknown
key, a value out of range or a wrong combination ends in one line before anything heavy starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from omegaconf import OmegaConf
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

from algorithms.tensors import CORRECTION_BOUNDS, Correction
from envs.judge.judge import JudgeConfig
from envs.sandbox import SandboxConfig
from envs.tasks.task import TaskConfig

# Batches whose initial values are generated at once, since each switch of weights costs time.
PREFETCHED_BATCHES = 16

Share = Annotated[float, Field(ge=0, le=1)]


def _folder_name(value: str) -> str:
    if not re.fullmatch(r"[^/. \x00-\x1f][^/\x00-\x1f]*", value):
        raise ValueError("it should name one folder inside output_dir, such as first-try")
    return value


FolderName = Annotated[str, AfterValidator(_folder_name)]
DeviceName = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]


@dataclass
class ModelConfig:
    """The model, its precision and its adapter: conf/model/_base.yaml."""

    name: str
    path: str
    fallback: str | None
    dtype: Literal["float32", "bfloat16", "float16", "auto"]
    head_dtype: Literal["float32", "auto"]
    device: DeviceName
    chat_args: dict[str, Any]
    adapter: Literal["none", "lora"]
    adapter_rank: PositiveInt
    adapter_alpha: PositiveFloat
    adapter_rate: PositiveFloat
    checkpoint_activations: bool
    threads: PositiveInt


@dataclass
class EngineConfig:
    """The engine that generates responses, and its log-prob check: conf/engine/_base.yaml."""

    name: Literal["hf", "vllm", "auto"]
    batch_size: PositiveInt
    static_cache: bool
    device: Annotated[str, Field(pattern=r"^(auto|cuda:\d+)$")]
    colocate: bool
    memory_share: Annotated[float, Field(gt=0, lt=1)]
    logprob_check_every: NonNegativeInt
    logprob_check_samples: PositiveInt
    logprob_check_bound: PositiveFloat | None


@dataclass
class RuntimeConfig:
    """How the run is distributed over processes: conf/runtime/_base.yaml."""

    name: Literal["sync", "torchrun", "ray"]
    overlap: bool
    address: str | None
    engines: PositiveInt
    judges: PositiveInt


@dataclass
class WandbConfig:
    """Weights & Biases: conf/logger/wandb.yaml."""

    project: str
    entity: str | None


@dataclass
class TrackioConfig:
    """trackio: conf/logger/trackio.yaml."""

    project: str


@dataclass
class LoggerConfig:
    """Loggers of metrics besides the run folder; logger=[wandb,tensorboard] uses both."""

    wandb: WandbConfig | None
    trackio: TrackioConfig | None
    tensorboard: bool


@dataclass
class TrainConfig:
    """Optimiser batches, equal for all algorithms in a comparison: conf/train.yaml."""

    prompts: PositiveInt
    group_size: PositiveInt
    temperature: PositiveFloat
    offline_share: Share
    offline_per_problem: PositiveInt
    replay_share: Share
    reset_share: Share
    sync_every: PositiveInt
    lag: NonNegativeInt
    minibatches: PositiveInt
    epochs: PositiveInt
    correction: Correction
    correction_low: NonNegativeFloat | None
    correction_high: PositiveFloat | None
    missing_logprobs: Literal["reject", "reference", "recomputed"]
    reference_every: PositiveInt | None
    resample_zero_variance: bool
    curriculum: Literal["none", "band"]
    truncation: Literal["reward_as_is", "mask"]
    micro_batch: PositiveInt
    micro_tokens: PositiveInt | None
    schedule: Literal["constant", "linear", "cosine"]
    warmup_steps: NonNegativeInt
    max_grad_norm: PositiveFloat | None
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] | None
    weight_decay: NonNegativeFloat
    checkpoint_every: NonNegativeInt
    keep_checkpoints: PositiveInt
    keep_best: bool
    keep_samples: bool
    keep_prefix_values: bool

    @property
    def keeps_rollout_copy(self) -> bool:
        """Whether the rollout policy may differ from the trained one, and has a copy of its own."""
        return self.sync_every > 1 or self.lag > 0

    @property
    def correction_bounds(self) -> tuple[float, float]:
        """The bounds of the correction's weights, resolved."""
        low, high = CORRECTION_BOUNDS.get(self.correction, (0.0, float("inf")))
        low = low if self.correction_low is None else self.correction_low
        return low, high if self.correction_high is None else self.correction_high


@dataclass
class ReplayConfig:
    """The replay buffer and its sources: conf/replay.yaml."""

    own: bool
    from_runs: list[str]
    files: list[str]
    capacity: PositiveInt
    max_age: NonNegativeInt | None
    max_uses: PositiveInt | None
    sampling: Literal["uniform", "recent", "balanced"]
    frozen: bool


@dataclass
class EvalConfig:
    """Evaluation: conf/eval.yaml."""

    every: NonNegativeInt
    split: Literal["train", "tune", "choose", "test"]
    final: bool
    samples: PositiveInt
    turns: PositiveInt | None
    temperature: NonNegativeFloat
    further_temperatures: list[NonNegativeFloat]
    top_p: Annotated[float, Field(gt=0, le=1)]
    k: list[PositiveInt]
    show: NonNegativeInt
    kl_samples: NonNegativeInt


@dataclass
class RunConfig:
    """A whole run: conf/config.yaml. `algo` is an instance of the algorithm's own `Config`."""

    algo: Any
    task: TaskConfig
    model: ModelConfig
    engine: EngineConfig
    sandbox: SandboxConfig
    judge: JudgeConfig
    runtime: RuntimeConfig
    logger: LoggerConfig
    train: TrainConfig
    replay: ReplayConfig
    eval: EvalConfig
    name: FolderName
    seed: Annotated[int, Field(ge=0, lt=2**63)]  # beyond, torch takes no seed
    steps: NonNegativeInt
    output_dir: Annotated[str, Field(min_length=1)]
    tuned: str | None

    @property
    def eval_turns(self) -> int:
        """The most answers of a conversation in evaluations."""
        return self.eval.turns or self.task.turns

    def longest_response(self, turns: int) -> int:
        """Return the most tokens after the prompt, of a conversation of so many answers.

        `task.max_response_tokens` is resolved by now.
        """
        answer = self.task.max_response_tokens
        if answer is None:
            raise ValueError("task.max_response_tokens is not resolved")
        return turns * answer + (turns - 1) * self.task.max_observation_tokens


def plain_values(config: Any) -> dict[str, Any]:
    """Return a composed or loaded configuration as plain values, resolved."""
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}
