"""The typed shape of a run's configuration, and the checks that need more than a type.

Hydra composes `conf/`; `parse` merges the result into these dataclasses, so that an unknown key, a
wrong type or a combination that cannot work ends in one line before anything heavy starts. The
options of an algorithm are typed in its own file.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.judge import JudgeConfig
from envs.sandbox.select import SandboxConfig
from envs.tasks.config import TaskConfig
from experiments.errors import UserError


@dataclass
class ModelConfig:
    """Which model, and how it is held."""

    name: str = "nano"
    path: str = "assets/nano"  # a saved model's folder, absolute or in this repository; or a hub id
    dtype: str = "float32"  # float32 | bfloat16 | auto: bfloat16 on a GPU
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    chat_args: dict[str, Any] = field(default_factory=dict)  # for the model's chat template
    threads: int = 1  # CPU threads of torch; set it deliberately, two that compete are slower


@dataclass
class EngineConfig:
    """What writes the responses, and how it is watched."""

    name: str = "hf"  # hf | vllm | auto: vllm on a GPU where it is installed
    batch_size: int = 256  # responses written at once
    device: str = "auto"  # vllm: auto is the learner's | cuda:N, one of its own
    colocate: bool = False  # vllm on the learner's GPU sleeps while the learner works
    memory_share: float = 0.4  # vllm: of its GPU's memory, weights and cache of keys and values
    check_every: int = 10  # steps from one check against the learner to the next; 0: none
    check_samples: int = 16  # fresh responses in a check
    check_bound: float | None = None  # nats; null: 0.001 in float32, 0.02 in bfloat16
    correction: str = "none"  # of the ratio, for what engine and learner differ by: none | truncate
    correction_bound: float = 2.0  # truncate: the largest weight of a token


@dataclass
class RuntimeConfig:
    """How the run is spread over processes."""

    name: str = "sync"


@dataclass
class LoggerConfig:
    """Where metrics go besides the run folder."""

    name: str = "none"  # none | wandb
    project: str = "spo-bench"


@dataclass
class TrainConfig:
    """One optimiser batch, the same for every algorithm in a comparison."""

    prompts: int = 16  # problems in a batch
    group_size: int = 8  # responses to each
    temperature: float = 1.0  # of training responses; also divides the learner's logits
    offline_share: float = 0.0  # share of each group taken from the data set's own programs
    offline_per_problem: int = 8  # of a problem's correct programs, and of its incorrect ones
    sync_every: int = 1  # the writing policy takes the trained weights once in so many batches
    truncation: str = "reward_as_is"  # responses cut at max_response_tokens: reward_as_is | mask
    micro_batch: int = 64  # responses in one forward and backward; changes memory, not results
    schedule: str = "constant"  # of the learning rates, after warm-up: constant | linear | cosine
    warmup_steps: int = 5
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    checkpoint_every: int = 0  # steps; 0 saves the final weights only


@dataclass
class EvalConfig:
    """How policies are evaluated; the defaults are the paper's."""

    every: int = 50  # steps; also at the start and the end. 0: only there
    split: str = "test"  # test | validation
    samples: int = 20  # responses to each problem
    temperature: float = 0.4
    top_p: float = 0.95
    k: list[int] = field(default_factory=lambda: [1, 5, 10])
    kl_samples: int = 4  # fresh responses to each problem for the KL to the base; 0: not measured


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
    name: str = "mini"  # the experiment: its runs stand together in output_dir/name
    seed: int = 0
    steps: int = 200  # optimiser batches
    output_dir: str = "outputs"


def parse(composed: DictConfig) -> RunConfig:
    """The typed configuration; a UserError names the key, the value and what would be right."""
    import algorithms

    if missing := sorted(OmegaConf.missing_keys(composed)):
        raise UserError(f"{missing[0]} has no value; give it on the command line: {missing[0]}=...")
    try:
        algorithm = algorithms.load(str(composed.algo.name))
        algo = _typed("algo", algorithm.Config, composed.algo)
        rest = {key: value for key, value in composed.items() if key != "algo"}
        config = _typed("", RunConfig, OmegaConf.create({"algo": None, **rest}))
        config.algo = algo
    except (ValueError, OmegaConfBaseException) as error:
        raise UserError(str(error).split("\n")[0]) from error
    _check_values(config)
    _check_engine(config)
    _check_combinations(config, algorithm(algo, config.task.reward.high).needs)
    return config


def _typed(prefix: str, schema: type, node: Any) -> Any:
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), node))
    except OmegaConfBaseException as error:
        path = ".".join(part for part in (prefix, error.full_key or "") if part)
        raise UserError(_explain(error, path, schema, prefix)) from error


def _explain(error: OmegaConfBaseException, path: str, schema: type, prefix: str) -> str:
    """One line on a key that does not exist or a value of the wrong type."""
    holder, _, leaf = path.removeprefix(f"{prefix}." if prefix else "").rpartition(".")
    for part in filter(None, holder.split(".")):
        schema = next((f.default_factory for f in fields(schema) if f.name == part), schema)
    known = [f.name for f in fields(schema)] if is_dataclass(schema) else []
    if leaf in known:
        reason = str(error).split("\n")[0]
        kind = next(f.type for f in fields(schema) if f.name == leaf)
        return f"{path}: {reason}; it takes a value of type {kind}"
    near = difflib.get_close_matches(leaf, known, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key {path!r}; {meant}keys here: {', '.join(known)}"


def _check_values(c: RunConfig) -> None:
    one_of = {
        "model.dtype": ("float32", "bfloat16", "auto"),
        "engine.name": ("hf", "vllm", "auto"),
        "engine.correction": ("none", "truncate"),
        "runtime.name": ("sync",),
        "logger.name": ("none", "wandb"),
        "train.truncation": ("reward_as_is", "mask"),
        "train.schedule": ("constant", "linear", "cosine"),
        "eval.split": ("test", "validation"),
    }
    for path, allowed in one_of.items():
        if _get(c, path) not in allowed:
            raise UserError(f"{path}={_get(c, path)!r}; it is one of {', '.join(allowed)}")
    at_least = {
        **dict.fromkeys(("steps", "eval.every", "train.checkpoint_every", "seed"), 0),
        "engine.check_every": 0,
        "engine.check_samples": 1,
        "eval.kl_samples": 0,
        **dict.fromkeys(("train.prompts", "train.group_size", "train.sync_every"), 1),
        **dict.fromkeys(("train.micro_batch", "engine.batch_size", "eval.samples"), 1),
        "train.offline_per_problem": 1,
        "task.few_shot": 0,
        **dict.fromkeys(("model.threads", "task.max_response_tokens", "task.max_prompt_tokens"), 1),
        **dict.fromkeys(("task.train_problems", "task.validation_problems"), 1),
        **dict.fromkeys(("task.test_problems", "task.max_tests", "task.max_test_bytes"), 1),
        **dict.fromkeys(("train.warmup_steps", "train.weight_decay", "eval.temperature"), 0),
    }
    for path, low in at_least.items():
        if _get(c, path) is not None and _get(c, path) < low:
            raise UserError(f"{path}={_get(c, path)}; it must be at least {low}")
    for path in ("train.temperature", "eval.top_p", "train.max_grad_norm", "algo.learning_rate"):
        if _get(c, path) <= 0:
            raise UserError(f"{path}={_get(c, path)}; it must be above 0")
    if c.eval.top_p > 1:
        raise UserError(f"eval.top_p={c.eval.top_p}; it is at most 1")
    if not 0 <= c.train.offline_share <= 1:
        raise UserError(f"train.offline_share={c.train.offline_share}; it lies between 0 and 1")
    if not c.eval.k or min(c.eval.k) < 1 or max(c.eval.k) > c.eval.samples:
        raise UserError(f"eval.k={c.eval.k}; each lies between 1 and eval.samples={c.eval.samples}")


def _check_engine(c: RunConfig) -> None:
    e = c.engine
    if e.check_bound is not None and e.check_bound <= 0:
        raise UserError(f"engine.check_bound={e.check_bound}; it must be above 0, or null")
    if e.correction_bound < 1:
        raise UserError(f"engine.correction_bound={e.correction_bound}; it is at least 1")
    if e.name == "hf":
        return
    if not re.fullmatch(r"auto|cuda:\d+", e.device):
        raise UserError(f"engine.device={e.device!r}; it is auto or cuda:N")
    if e.colocate and e.device != "auto":
        raise UserError(
            f"engine.colocate=true with engine.device={e.device}: only on the learner's GPU is "
            "there anything to sleep for; set engine.device=auto or engine.colocate=false"
        )
    if not 0 < e.memory_share < 1:
        raise UserError(f"engine.memory_share={e.memory_share}; it lies between 0 and 1")
    if e.name == "vllm":
        from experiments.engines.vllm import check_installed

        check_installed()


def _check_combinations(c: RunConfig, needs: Any) -> None:
    t = c.train
    if c.task.reward.needs_all_tests and c.judge.early_stop:
        raise UserError(
            f"task.reward.kind={c.task.reward.kind} with judge.early_stop=true: the share of tests "
            "passed needs all of them; set judge.early_stop=false"
        )
    if needs.groups and t.group_size < 2:
        raise UserError(
            f"train.group_size={t.group_size} under algo={c.algo.name}: a group of one has no "
            "relative advantage; use at least 2"
        )
    offline = round(t.group_size * t.offline_share)
    if abs(offline - t.group_size * t.offline_share) > 1e-9:
        raise UserError(
            f"train.offline_share={t.offline_share} of train.group_size={t.group_size} is no whole "
            f"number of responses; {offline / t.group_size:g} is near"
        )
    if c.engine.correction != "none" and not needs.behaviour:
        raise UserError(
            f"engine.correction={c.engine.correction} under algo={c.algo.name}: it has no ratio to "
            "correct; use engine.correction=none"
        )
    if offline and not needs.off_policy:
        raise UserError(
            f"train.offline_share={t.offline_share} under algo={c.algo.name}: it learns rightly "
            "only from what its own policy wrote, and the data set's programs lack even their "
            "writer's log-probs; use 0, algo=spo or algo=sft"
        )


def _get(config: RunConfig, path: str) -> Any:
    for part in path.split("."):
        config = getattr(config, part)
    return config
