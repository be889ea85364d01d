"""The typed shape of a run's configuration.

Hydra composes `conf/`; `parse` reads the result into these dataclasses, so that an unknown key, a
value out of range or a combination that cannot work ends in one line before anything heavy starts.
What a value may be stands in its annotation; the options of an algorithm are in its own file.
"""

from __future__ import annotations

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
from envs.config_parsing import parse_values
from envs.import_by_name import load_function
from envs.judge.judge import JudgeConfig
from envs.sandbox.select import SandboxConfig
from envs.tasks.config import TaskConfig
from experiments.config.validation import check
from experiments.errors import UserError

# Batches whose initial values are generated at once, since each switch of weights costs time.
PREFETCHED_BATCHES = 16

Share = Annotated[float, Field(ge=0, le=1)]


def _one_folder(name: str) -> str:
    if name.startswith((".", " ")) or "/" in name or not name.isprintable() or not name:
        raise ValueError("it names one folder inside output_dir, e.g. name=first-try")
    return name


FolderName = Annotated[
    str,
    BeforeValidator(lambda name: str(name) if isinstance(name, int) else name),
    AfterValidator(_one_folder),
]

# Fields that exist only under some choices of their group
VLLM_ONLY = {"choices": ("auto", "vllm")}
RAY_ONLY = {"choices": ("ray",)}
SYNC_ONLY = {"choices": ("sync",)}


@dataclass
class ModelConfig:
    """Which model, and how it is held."""

    name: str = "nano"
    path: str = "assets/nano"  # a saved model's folder, absolute or in this repository; or a hub id
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"  # auto: bfloat16 on a GPU
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    chat_args: dict[str, Any] = field(default_factory=dict)  # for the model's chat template
    # lora: the weights stay as they are, and low-rank matrices beside all linear layers are trained
    adapter: Literal["none", "lora"] = "none"
    adapter_rank: PositiveInt = 32
    adapter_alpha: PositiveFloat = 32.0  # the adapter counts alpha/rank
    adapter_rate: PositiveFloat = 10.0  # times the learning rates of algo
    # a block keeps its input, and computes the rest again in the backward pass: less memory
    checkpoint_activations: bool = False
    # CPU threads of torch; set it deliberately, two that compete are slower
    threads: PositiveInt = 1


@dataclass
class EngineConfig:
    """What writes the responses, and how it is watched."""

    name: Literal["hf", "vllm", "auto"] = "hf"  # auto: vllm on a GPU where it is installed
    batch_size: PositiveInt = 256  # responses written at once
    # vllm: auto is the learner's | cuda:N, one of its own
    device: Annotated[str, Field(pattern=r"^(auto|cuda:\d+)$")] = field(
        default="auto", metadata=VLLM_ONLY
    )
    # vllm on the learner's GPU sleeps while the learner works
    colocate: bool = field(default=False, metadata=VLLM_ONLY)
    # vllm: of its GPU's memory, weights and cache of keys and values
    memory_share: Annotated[float, Field(gt=0, lt=1)] = field(default=0.4, metadata=VLLM_ONLY)
    # steps from one check against the learner to the next; 0: none
    logprob_check_every: NonNegativeInt = 10
    logprob_check_samples: PositiveInt = 16  # fresh responses in a check
    # nats; null: 0.001 in float32, 0.02 in bfloat16
    logprob_check_bound: PositiveFloat | None = None


@dataclass
class RuntimeConfig:
    """How the run is spread over processes."""

    # torchrun: over its processes, on one node; ray: actors write and judge, this process learns,
    # or the processes that torchrun has begun
    name: Literal["sync", "torchrun", "ray"] = "sync"
    # sync: what is written is judged while the rest is written, where there is a core for each;
    # changes time, not results
    overlap: bool = field(default=True, metadata=SYNC_ONLY)
    # ray: a cluster that `ray start` began, HOST:PORT or auto; null: one of this run's own
    address: str | None = field(default=None, metadata=RAY_ONLY)
    # ray: actors that write, each with a GPU where the model is on one
    engines: PositiveInt = field(default=1, metadata=RAY_ONLY)
    # ray: actors that judge, each with a sandbox of sandbox.workers
    judges: PositiveInt = field(default=1, metadata=RAY_ONLY)


@dataclass
class WandbConfig:
    """Weights & Biases; conf/logger/wandb.yaml holds the defaults."""

    project: str
    entity: str | None  # user or team; null: your own


@dataclass
class LoggerConfig:
    """Where metrics go besides the run folder; logger=[wandb,tensorboard] takes both."""

    wandb: WandbConfig | None = None
    tensorboard: bool = False


@dataclass
class TrainConfig:
    """One optimiser batch, the same for every algorithm in a comparison."""

    prompts: PositiveInt = 16  # problems in a batch
    group_size: PositiveInt = 8  # responses to each
    temperature: PositiveFloat = 1.0  # of training responses; also divides the learner's logits
    offline_share: Share = 0.0  # share of each group taken from the data set's own programs
    # of a problem's correct programs, and of its incorrect ones
    offline_per_problem: PositiveInt = 8
    replay_share: Share = 0.0  # share of each group taken from the replay store; the rest is fresh
    # the writing policy takes the trained weights once in so many batches
    sync_every: PositiveInt = 1
    # the writing policy is the trained one of so many batches before; with sync_every=1
    lag: NonNegativeInt = 0
    minibatches: PositiveInt = 1  # optimiser steps in a pass over a batch, each on whole groups
    epochs: PositiveInt = 1  # passes over a batch
    # of the ratio on responses of older weights, or of an engine that differs from the learner
    correction: Correction = "none"
    # of its weights; null: algorithms/tensors.py says which
    correction_low: NonNegativeFloat | None = None
    correction_high: PositiveFloat | None = None
    # behaviour log-probs of responses that have none. reject: losses with a ratio reject such
    # responses; reference, recomputed: the reference's or the current policy's log-probs
    missing_logprobs: Literal["reject", "reference", "recomputed"] = "reject"
    # groups whose rewards are all equal make way for further problems', and count in the budget
    resample_zero_variance: bool = False
    # responses cut at max_response_tokens
    truncation: Literal["reward_as_is", "mask"] = "reward_as_is"
    # responses in one forward and backward; changes memory, not results
    micro_batch: PositiveInt = 64
    # tokens in one, padding and prompts included, however many responses; null: micro_batch holds
    micro_tokens: PositiveInt | None = None
    # of the learning rates, after warm-up
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = 5
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.0
    checkpoint_every: NonNegativeInt = 20  # steps; 0: only at the end, and at an interrupt
    keep_checkpoints: PositiveInt = 2  # the last ones
    # also the one that did best, by pass@k of the least eval.k; needs eval.split=validation
    keep_best: bool = False
    keep_samples: bool = False  # every training sample stays in the run folder, for replay

    @property
    def stale(self) -> bool:
        """Whether the writing policy needs weights of its own."""
        return self.sync_every > 1 or self.lag > 0

    @property
    def correction_bounds(self) -> tuple[float, float]:
        """Of the correction's weights, resolved."""
        low, high = CORRECTION_BOUNDS.get(self.correction, (0.0, float("inf")))
        given_low, given_high = self.correction_low, self.correction_high
        return low if given_low is None else given_low, high if given_high is None else given_high

    @property
    def greatest_lag(self) -> int:
        """Optimiser steps that the writer lies behind at most when its responses are used."""
        return max(self.lag + 1, self.sync_every) * self.minibatches * self.epochs - 1


@dataclass
class ReplayConfig:
    """Samples that are used again, or that others wrote; train.replay_share says how many."""

    own: bool = True  # this run's responses, from the batch after theirs on
    from_runs: list[str] = field(default_factory=list)  # folders, kept with train.keep_samples
    # JSON lines of programs; docs/reference/replay.md
    files: list[str] = field(default_factory=list)
    capacity: PositiveInt = 100_000  # samples; the oldest make way
    # optimiser steps since weights of this run wrote one; null: any
    max_age: NonNegativeInt | None = None
    max_uses: PositiveInt | None = None  # batches that one may be in; null: any
    # balanced: as many of each reward as there are
    sampling: Literal["uniform", "recent", "balanced"] = "uniform"
    # batches are those that the run in from_runs kept, in their order; nothing is written or judged
    frozen: bool = False


@dataclass
class EvalConfig:
    """How policies are evaluated; the defaults are the paper's."""

    every: NonNegativeInt = 50  # steps; also at the start and the end. 0: only there
    split: Literal["test", "validation"] = "test"
    samples: PositiveInt = 20  # responses to each problem
    temperature: NonNegativeFloat = 0.4
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    k: list[PositiveInt] = field(default_factory=lambda: [1, 5, 10])  # those above samples go
    # fresh responses to each problem for the KL to the base; 0: not measured
    kl_samples: NonNegativeInt = 4


@dataclass
class RunConfig:
    """A whole run. `algo` is typed by the algorithm's own `Config`."""

    algo: Any
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
    name: FolderName = "mini"  # the experiment: its runs stand together in output_dir/name
    seed: NonNegativeInt = 0
    steps: NonNegativeInt = 200  # optimiser batches
    output_dir: Annotated[str, Field(min_length=1)] = "outputs"
    # how the values were found, in words for the report; null: they are given
    tuned: str | None = None


def parse(composed: DictConfig) -> RunConfig:
    """The typed configuration; a UserError names the key, the value and what would be right."""
    if missing := sorted(OmegaConf.missing_keys(composed)):
        raise UserError(f"{missing[0]} has no value; give it on the command line: {missing[0]}=...")
    try:
        values = OmegaConf.to_container(composed, resolve=True)
        algorithm = load_function(str(values["algo"]["core"]), "algo.core")
        if not is_dataclass(options := getattr(algorithm, "Config", None)):
            raise ValueError(
                f"algo.core={values['algo']['core']}: no algorithm; its attribute Config would be "
                "the dataclass of its options, as in algorithms/demonstrations.py"
            )
        algo = parse_values(options, values["algo"], "algo")
        config = parse_values(RunConfig, values | {"algo": None})
        config.algo = algo
    except (ValueError, OmegaConfBaseException) as error:
        raise UserError(str(error).split("\n")[0]) from error
    check(config, algorithm(algo, config.task.reward.high).needs)
    return config
