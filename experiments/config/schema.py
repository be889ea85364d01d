"""The dataclasses of a run's configuration, with its defaults.

Hydra composes `conf/` onto these defaults, and `parse` reads the result into the dataclasses. An
unknown key, a value out of range or an impossible combination ends in one line before anything
heavy starts. Annotations give the allowed values; an algorithm's options are in its own file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

from algorithms.tensors import CORRECTION_BOUNDS, Correction
from envs.command_line.config_parsing import parse_values
from envs.import_by_name import load_function
from envs.judge.judge import JudgeConfig
from envs.sandbox import SandboxConfig
from envs.tasks.config import TaskConfig
from experiments.config.validation import validate
from experiments.errors import UserError

# Batches whose initial values are generated at once, since each switch of weights costs time.
PREFETCHED_BATCHES = 16

Share = Annotated[float, Field(ge=0, le=1)]


def _one_folder(name: str) -> str:
    if name.startswith((".", " ")) or "/" in name or not name.isprintable() or not name:
        raise ValueError("it must be the name of one folder inside output_dir, e.g. name=first-try")
    return name


FolderName = Annotated[
    str,
    BeforeValidator(lambda name: str(name) if isinstance(name, int) else name),
    AfterValidator(_one_folder),
]


def _device_name(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ValueError("it must be auto, cpu, cuda or cuda:N")
    return name


DeviceName = Annotated[str, AfterValidator(_device_name)]

# Fields that exist only under some choices of their group
VLLM_ONLY = {"choices": ("auto", "vllm")}
RAY_ONLY = {"choices": ("ray",)}
SYNC_ONLY = {"choices": ("sync",)}


@dataclass
class ModelConfig:
    """The model, its precision and its adapter."""

    name: str = "nano"  # in labels and tables
    # a saved model's folder, absolute or in this repository, a .gguf file, or a hub id
    path: str = "assets/nano"
    # PACKAGE/FILE of an installed package: used if the hub cannot be reached
    fallback: str | None = None
    # auto: bfloat16 on a GPU, and on a CPU that has instructions for it
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    # auto: the first GPU if there is one; else cpu, cuda or cuda:N
    device: DeviceName = "auto"
    # arguments of the model's chat template
    chat_args: dict[str, Any] = field(default_factory=dict)
    # lora: the weights are frozen, and low-rank matrices beside all linear layers are trained
    adapter: Literal["none", "lora"] = "none"
    adapter_rank: PositiveInt = 32  # lora: rank of each matrix
    adapter_alpha: PositiveFloat = 32.0  # lora: the adapter is scaled by alpha/rank
    adapter_rate: PositiveFloat = 10.0  # lora: factor of the learning rates of algo
    # recompute each block in the backward pass from its input: less memory
    checkpoint_activations: bool = False
    # CPU threads of torch; competing threads are slower
    threads: PositiveInt = 1


@dataclass
class EngineConfig:
    """The engine that generates responses, and its log-prob check."""

    name: Literal["hf", "vllm", "auto"] = "hf"  # auto: vllm on a GPU where it is installed
    batch_size: PositiveInt = 256  # responses generated at once
    # vllm: auto: the learner's GPU | cuda:N: a GPU of its own
    device: Annotated[str, Field(pattern=r"^(auto|cuda:\d+)$")] = field(
        default="auto", metadata=VLLM_ONLY
    )
    # vllm on the learner's GPU sleeps while the learner trains
    colocate: bool = field(default=False, metadata=VLLM_ONLY)
    # vllm: share of its GPU's memory, for weights and KV cache
    memory_share: Annotated[float, Field(gt=0, lt=1)] = field(default=0.4, metadata=VLLM_ONLY)
    # steps between checks of the engine's log-probs against the learner's; 0: no checks
    logprob_check_every: NonNegativeInt = 10
    logprob_check_samples: PositiveInt = 16  # responses of the batch in a check
    # bound of the check, in nats; null: 0.001 in float32, 0.06 in bfloat16
    logprob_check_bound: PositiveFloat | None = None


@dataclass
class RuntimeConfig:
    """How the run is distributed over processes."""

    # torchrun: over its processes, on one node; ray: actors generate and judge, this process (or
    # torchrun's processes) trains
    name: Literal["sync", "torchrun", "ray"] = "sync"
    # sync: judge finished responses while others are generated, if there is a core for each;
    # changes time, not results
    overlap: bool = field(default=True, metadata=SYNC_ONLY)
    # ray: a cluster from `ray start`, HOST:PORT or auto; null: this run starts its own
    address: str | None = field(default=None, metadata=RAY_ONLY)
    # ray: actors that generate, each with a GPU if the model is on one
    engines: PositiveInt = field(default=1, metadata=RAY_ONLY)
    # ray: actors that judge, each with a sandbox of sandbox.workers
    judges: PositiveInt = field(default=1, metadata=RAY_ONLY)


@dataclass
class WandbConfig:
    """Weights & Biases; conf/logger/wandb.yaml holds the defaults."""

    project: str  # that the run is logged to
    entity: str | None  # user or team; null: your own


@dataclass
class TrackioConfig:
    """trackio; conf/logger/trackio.yaml holds the defaults."""

    project: str  # that the run is logged to


@dataclass
class LoggerConfig:
    """Loggers of metrics besides the run folder; logger=[wandb,tensorboard] uses both."""

    wandb: WandbConfig | None = None  # set by logger=wandb
    trackio: TrackioConfig | None = None  # set by logger=trackio
    tensorboard: bool = False  # write event files in the run folder


@dataclass
class TrainConfig:
    """Optimiser batches, equal for all algorithms in a comparison."""

    prompts: PositiveInt = 16  # problems in a batch
    group_size: PositiveInt = 8  # responses to each prompt
    temperature: PositiveFloat = 1.0  # of training responses; also divides the learner's logits
    offline_share: Share = 0.0  # share of each group from the data set's own programs
    # at most so many correct programs of a problem, and so many incorrect ones
    offline_per_problem: PositiveInt = 8
    replay_share: Share = 0.0  # share of each group from the replay buffer; the rest is fresh
    # staleness: sync the rollout policy's weights every N batches
    sync_every: PositiveInt = 1
    # staleness: the rollout policy is exactly so many batches old, from batch lag + 1 on; needs
    # sync_every=1. Columns of staleness are in optimiser steps
    lag: NonNegativeInt = 0
    minibatches: PositiveInt = 1  # optimiser steps in one pass over a batch, each on whole groups
    epochs: PositiveInt = 1  # passes over a batch
    # correction of the ratio for stale weights or an engine that differs from the learner
    correction: Correction = "none"
    # least weight of the correction; null: the method's own (algorithms/tensors.py)
    correction_low: NonNegativeFloat | None = None
    # greatest weight of the correction; null: the method's own
    correction_high: PositiveFloat | None = None
    # behaviour log-probs of responses that have none. reject: losses with a ratio reject such
    # responses; reference, recomputed: the reference's or the current policy's log-probs
    missing_logprobs: Literal["reject", "reference", "recomputed"] = "reject"
    # the reference becomes the present policy after every N batches; null: it stays the initial one
    reference_every: PositiveInt | None = None
    # replace zero-variance groups by further problems' (dynamic sampling); both are in the budget
    resample_zero_variance: bool = False
    # band: draw solved and unsolved problems seldom (experiments/rollout/problem_order.py)
    curriculum: Literal["none", "band"] = "none"
    # responses cut at max_response_tokens: rewarded as they are, or left out of the loss
    truncation: Literal["reward_as_is", "mask"] = "reward_as_is"
    # responses in one forward and backward; changes memory, not results
    micro_batch: PositiveInt = 64
    # tokens in one forward and backward, with padding and prompts; null: micro_batch decides
    micro_tokens: PositiveInt | None = None
    # of the learning rates after the warm-up
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = 5  # over which the learning rates rise from 0
    # bound of each step's gradient norm, policy and critic each for itself; null: none
    max_grad_norm: PositiveFloat | None = 1.0
    # instead of max_grad_norm: a quantile of the last norms, policy and critic each for itself;
    # null: max_grad_norm decides
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    weight_decay: NonNegativeFloat = 0.0  # of AdamW
    # steps between checkpoints; 0: only at the end and at an interrupt
    checkpoint_every: NonNegativeInt = 20
    keep_checkpoints: PositiveInt = 2  # number of last checkpoints that stay
    # keep the best checkpoint too, by pass@k of the smallest eval.k; needs eval.split=tune
    keep_best: bool = False
    keep_samples: bool = False  # log every training sample in the run folder, for replay

    @property
    def keeps_rollout_copy(self) -> bool:
        """Whether the rollout policy may differ from the trained one, and has a copy of its own."""
        return self.sync_every > 1 or self.lag > 0

    @property
    def correction_bounds(self) -> tuple[float, float]:
        """The bounds of the correction's weights, resolved."""
        low, high = CORRECTION_BOUNDS.get(self.correction, (0.0, float("inf")))
        if self.correction_low is not None:
            low = self.correction_low
        if self.correction_high is not None:
            high = self.correction_high
        return low, high

    @property
    def greatest_age(self) -> int:
        """The largest age of a sample in optimiser steps, where `lag` is in batches.

        It is reached at the last step of a batch.
        """
        return max(self.lag + 1, self.sync_every) * self.minibatches * self.epochs - 1


@dataclass
class ReplayConfig:
    """The replay buffer and its sources; train.replay_share says how much is replayed."""

    own: bool = True  # replay this run's responses, from the next batch on
    # replay the samples of these run folders, which had train.keep_samples=true
    from_runs: list[str] = field(default_factory=list)
    # replay the programs in JSON lines files; docs/reference/replay.md
    files: list[str] = field(default_factory=list)
    capacity: PositiveInt = 100_000  # samples; the oldest are dropped
    # optimiser steps from the policy that generated a sample of this run; null: no limit
    max_age: NonNegativeInt | None = None
    max_uses: PositiveInt | None = None  # batches that one sample may be in; null: no limit
    # balanced: equally many of each reward, as far as possible
    sampling: Literal["uniform", "recent", "balanced"] = "uniform"
    # train on the logged batches of the run in from_runs, in their order; generate nothing
    frozen: bool = False


@dataclass
class EvalConfig:
    """Evaluation; the defaults are the paper's."""

    every: NonNegativeInt = 50  # steps; also at the start and the end; 0: only then
    # docs/guide/data.md says what each is for; train: how far the model has learnt its problems
    split: Literal["train", "tune", "choose", "test"] = "choose"
    # a study's final run, whose runner sets it; without it, or by hand, eval.split=test warns
    final: bool = False
    samples: PositiveInt = 20  # responses to each problem
    # most answers of a conversation in evaluations; null: task.turns
    turns: PositiveInt | None = None
    temperature: NonNegativeFloat = 0.4  # of evaluation responses; 0: greedy
    # temperatures at which the model is evaluated as well, at the start and the end
    further_temperatures: list[NonNegativeFloat] = field(default_factory=list)
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95  # share of the probability that is sampled
    # of pass@k; k above `samples` are dropped
    k: list[PositiveInt] = field(default_factory=lambda: [1, 5, 10])
    # steps between the sample responses that a single run prints with their verdicts; 0: none
    show: NonNegativeInt = 20
    # fresh responses to each problem for the KL to the base model; 0: not measured
    kl_samples: NonNegativeInt = 4


@dataclass
class RunConfig:
    """A whole run. `algo` is an instance of the algorithm's own `Config`."""

    algo: Any  # the algorithm's options
    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    name: FolderName = "mini"  # the experiment: its runs are in output_dir/name
    seed: NonNegativeInt = 0  # of weights, data order and sampling
    steps: NonNegativeInt = 200  # number of optimiser batches
    output_dir: Annotated[str, Field(min_length=1)] = "outputs"  # folder of all experiments
    # how the values were tuned, in words for the report; null: not tuned
    tuned: str | None = None

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


def parse(composed: DictConfig) -> RunConfig:
    """Return the checked configuration. UserError names the key, the value and the cure."""
    if missing := sorted(OmegaConf.missing_keys(composed)):
        raise UserError(f"{missing[0]} has no value; give it on the command line: {missing[0]}=...")
    try:
        values = plain_values(composed)
        _refuse_renamed_values(values)
        algorithm = load_function(str(values["algo"]["core"]), "algo.core")
        options = getattr(algorithm, "Config", None)
        if not (isinstance(options, type) and is_dataclass(options)):
            raise ValueError(
                f"algo.core={values['algo']['core']}: not an algorithm; it needs a "
                "dataclass Config of its options, as in algorithms/demonstrations.py"
            )
        algo = parse_values(options, values["algo"], "algo")
        config = parse_values(RunConfig, values | {"algo": None})
        config.algo = algo
    except (ValueError, OmegaConfBaseException) as error:
        raise UserError(str(error).split("\n")[0]) from error
    validate(config, algorithm(algo, config.task.reward.high).needs)
    return config


# (group, key, old value) → new value, for the message alone: the old value itself is refused.
RENAMED_VALUES = {("eval", "split", "validation"): "tune"}


def _refuse_renamed_values(values: dict[str, Any]) -> None:
    for (group, key, old), new in RENAMED_VALUES.items():
        section = values.get(group)
        if isinstance(section, dict) and section.get(key) == old:
            raise ValueError(f"{group}.{key}={old}: it is now {group}.{key}={new}")


def plain_values(config: Any, resolve: bool = True) -> dict[str, Any]:
    """Return a composed or loaded configuration as plain values, by default resolved."""
    values = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}
