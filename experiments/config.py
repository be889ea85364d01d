"""The typed shape of a run's configuration, and the checks that need more than a type.

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

from algorithms.corrections import BOUNDS, Correction
from envs.judge import JudgeConfig
from envs.named import load
from envs.sandbox.select import SandboxConfig
from envs.tasks.config import TaskConfig
from envs.typed import typed
from experiments.errors import UserError

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


@dataclass
class ModelConfig:
    """Which model, and how it is held."""

    name: str = "nano"
    path: str = "assets/nano"  # a saved model's folder, absolute or in this repository; or a hub id
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"  # auto: bfloat16 on a GPU
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    chat_args: dict[str, Any] = field(default_factory=dict)  # for the model's chat template
    # CPU threads of torch; set it deliberately, two that compete are slower
    threads: PositiveInt = 1


@dataclass
class EngineConfig:
    """What writes the responses, and how it is watched."""

    name: Literal["hf", "vllm", "auto"] = "hf"  # auto: vllm on a GPU where it is installed
    batch_size: PositiveInt = 256  # responses written at once
    # vllm: auto is the learner's | cuda:N, one of its own
    device: Annotated[str, Field(pattern=r"^(auto|cuda:\d+)$")] = "auto"
    colocate: bool = False  # vllm on the learner's GPU sleeps while the learner works
    # vllm: of its GPU's memory, weights and cache of keys and values
    memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.4
    # steps from one check against the learner to the next; 0: none
    check_every: NonNegativeInt = 10
    check_samples: PositiveInt = 16  # fresh responses in a check
    check_bound: PositiveFloat | None = None  # nats; null: 0.001 in float32, 0.02 in bfloat16


@dataclass
class RuntimeConfig:
    """How the run is spread over processes."""

    name: Literal["sync"] = "sync"


@dataclass
class LoggerConfig:
    """Where metrics go besides the run folder."""

    name: Literal["none", "wandb"] = "none"
    project: str = "spo-bench"


@dataclass
class TrainConfig:
    """One optimiser batch, the same for every algorithm in a comparison."""

    prompts: PositiveInt = 16  # problems in a batch
    group_size: PositiveInt = 8  # responses to each
    temperature: PositiveFloat = 1.0  # of training responses; also divides the learner's logits
    offline_share: Share = 0.0  # share of each group taken from the data set's own programs
    # of a problem's correct programs, and of its incorrect ones
    offline_per_problem: PositiveInt = 8
    # the writing policy takes the trained weights once in so many batches
    sync_every: PositiveInt = 1
    # the writing policy is the trained one of so many batches before; with sync_every=1
    lag: NonNegativeInt = 0
    minibatches: PositiveInt = 1  # optimiser steps in a pass over a batch, each on whole groups
    epochs: PositiveInt = 1  # passes over a batch
    # of the ratio on responses of older weights, or of an engine that differs from the learner
    correction: Correction = "none"
    # of its weights; null: algorithms/corrections.py says which
    correction_low: NonNegativeFloat | None = None
    correction_high: PositiveFloat | None = None
    # log-probs of responses whose writer told none; told: what has a ratio refuses them
    behaviour: Literal["told", "reference", "recomputed"] = "told"
    # groups whose rewards are all equal make way for further problems', and count in the budget
    resample_zero_variance: bool = False
    # responses cut at max_response_tokens
    truncation: Literal["reward_as_is", "mask"] = "reward_as_is"
    # responses in one forward and backward; changes memory, not results
    micro_batch: PositiveInt = 64
    # of the learning rates, after warm-up
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = 5
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.0
    checkpoint_every: NonNegativeInt = 20  # steps; 0: only at the end, and at an interrupt
    keep_checkpoints: PositiveInt = 2  # the last ones

    @property
    def stale(self) -> bool:
        """Whether the writing policy needs weights of its own."""
        return self.sync_every > 1 or self.lag > 0

    @property
    def correction_bounds(self) -> tuple[float, float]:
        """Of the correction's weights, resolved."""
        low, high = BOUNDS.get(self.correction, (0.0, float("inf")))
        given_low, given_high = self.correction_low, self.correction_high
        return low if given_low is None else given_low, high if given_high is None else given_high

    @property
    def greatest_lag(self) -> int:
        """Optimiser steps that the writer lies behind at most when its responses are used."""
        return max(self.lag + 1, self.sync_every) * self.minibatches * self.epochs - 1


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
    eval: EvalConfig = field(default_factory=EvalConfig)
    name: FolderName = "mini"  # the experiment: its runs stand together in output_dir/name
    seed: NonNegativeInt = 0
    steps: NonNegativeInt = 200  # optimiser batches
    output_dir: Annotated[str, Field(min_length=1)] = "outputs"


def parse(composed: DictConfig) -> RunConfig:
    """The typed configuration; a UserError names the key, the value and what would be right."""
    if missing := sorted(OmegaConf.missing_keys(composed)):
        raise UserError(f"{missing[0]} has no value; give it on the command line: {missing[0]}=...")
    try:
        values = OmegaConf.to_container(composed, resolve=True)
        algorithm = load(str(values["algo"]["core"]), "algo.core")
        if not is_dataclass(options := getattr(algorithm, "Config", None)):
            raise ValueError(
                f"algo.core={values['algo']['core']}: no algorithm; its attribute Config would be "
                "the dataclass of its options, as in algorithms/sft.py"
            )
        algo = typed(options, values["algo"], "algo")
        config = typed(RunConfig, values | {"algo": None})
        config.algo = algo
    except (ValueError, OmegaConfBaseException) as error:
        raise UserError(str(error).split("\n")[0]) from error
    _check_engine(config.engine)
    _check_combinations(config, algorithm(algo, config.task.reward.high).needs)
    return config


def _check_engine(e: EngineConfig) -> None:
    if e.name == "hf":
        return
    if e.colocate and e.device != "auto":
        raise UserError(
            f"engine.colocate=true with engine.device={e.device}: only on the learner's GPU is "
            "there anything to sleep for; set engine.device=auto or engine.colocate=false"
        )
    if e.name == "vllm":
        from experiments.engines.installed import check_installed

        check_installed()


def _check_combinations(c: RunConfig, needs: Any) -> None:
    t = c.train
    if not any(k <= c.eval.samples for k in c.eval.k):
        raise UserError(
            f"eval.k={c.eval.k}; at least one lies between 1 and eval.samples={c.eval.samples}"
        )
    judged = c.task.environment is None  # by the judge, whose tests these are
    if judged and c.task.reward.needs_all_tests and c.judge.early_stop:
        raise UserError(
            f"task.reward.kind={c.task.reward.kind} with judge.early_stop=true: the share of tests "
            "passed needs all of them; set judge.early_stop=false"
        )
    if needs.groups and t.group_size < needs.least_group:
        raise UserError(
            f"train.group_size={t.group_size} under algo={c.algo.name}: it compares the responses "
            f"to a prompt with each other; use at least {needs.least_group}"
        )
    if t.lag and t.sync_every > 1:
        raise UserError(
            f"train.lag={t.lag} with train.sync_every={t.sync_every}: either says how old the "
            "writer is; use train.sync_every=1 or train.lag=0"
        )
    if t.minibatches > t.prompts:
        raise UserError(
            f"train.minibatches={t.minibatches} of train.prompts={t.prompts}: a step takes at "
            "least one prompt's whole group; use as many or fewer"
        )
    if needs.max_lag is not None and t.greatest_lag > needs.max_lag:
        keys = {"lag": 0, "sync_every": 1, "minibatches": 1, "epochs": 1}
        given = [f"train.{key}={getattr(t, key)}" for key in keys if getattr(t, key) != keys[key]]
        raise UserError(
            f"{' with '.join(given)} under algo={c.algo.name}: it takes the writer for the policy "
            f"itself, at most {needs.max_lag} optimiser steps behind, and here it is up to "
            f"{t.greatest_lag}; lower it, or allow more with algo.max_lag={t.greatest_lag}"
        )
    if t.resample_zero_variance and t.group_size < 2:
        raise UserError(
            "train.resample_zero_variance=true with train.group_size=1: a group of one never has a "
            "spread; use false, or a larger group"
        )
    offline = round(t.group_size * t.offline_share)
    if abs(offline - t.group_size * t.offline_share) > 1e-9:
        raise UserError(
            f"train.offline_share={t.offline_share} of train.group_size={t.group_size} is no whole "
            f"number of responses; {offline / t.group_size:g} is near"
        )
    _check_ratio(c, needs, offline)


def _check_ratio(c: RunConfig, needs: Any, offline: int) -> None:
    t = c.train
    if t.correction != "none" and (not needs.behaviour or needs.anchored):
        raise UserError(
            f"train.correction={t.correction} under algo={c.algo.name}: it has no ratio to "
            "correct; use train.correction=none"
        )
    if t.correction not in BOUNDS and (t.correction_low, t.correction_high) != (None, None):
        raise UserError(
            f"train.correction={t.correction} has no bounds; leave train.correction_low and "
            f"train.correction_high at null, or use one of {', '.join(BOUNDS)}"
        )
    low, high = t.correction_bounds
    if low > high:
        raise UserError(f"train.correction_low={low:g} is above train.correction_high={high:g}")
    with_ratio = needs.behaviour and needs.max_lag is None
    if offline and not needs.off_policy and not (with_ratio and t.behaviour != "told"):
        raise UserError(
            f"train.offline_share={t.offline_share} under algo={c.algo.name}: it learns rightly "
            "only from what its own policy wrote, and the data set's programs lack even their "
            "writer's log-probs; use 0, or one that `python -m algorithms` says learns from anyone"
            + (
                "; train.behaviour=reference or =recomputed pretends who wrote them"
                if with_ratio
                else ""
            )
        )
