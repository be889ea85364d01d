"""The parts that learn, generate and judge: one process has one of each, and so has every rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.environment import Environment
from envs.import_by_name import load_function
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.rollout.environments import Environments
from experiments.run_dir.ledger import Ledger
from experiments.runtime.base import Runtime


@dataclass
class WorkerParts:
    """The parts of one process, or on rank 0 the proxies for all ranks'."""

    learner: Learner
    weight_sync: WeightSync
    engine: Engine  # of the rollout policy
    eval_engine: Engine  # of the trained policy
    reference_engine: Engine | None  # of the base, where the algorithm needs initial values
    environments: Environments | None  # None on ranks without a judge


def build_worker_parts(
    config: RunConfig,
    base: Policy,
    tokenizer: PreTrainedTokenizerBase,
    environments: Environments | None,
    runtime: Runtime,
    ledger: Ledger | None = None,
) -> WorkerParts:
    """Build the parts, all with the weights of `base`. Raises UserError."""
    algorithm = load_function(config.algo.core, "algo.core")(config.algo, config.task.reward.high)
    policy = trained = loading.trained_policy(base, config)
    # Our own engine takes no adapter; vLLM takes an adapted policy's weights as they are computed.
    if runtime.sharded or (config.engine.name == "hf" and config.model.adapter != "none"):
        trained = runtime.engine_copy(base)
    behaviour = loading.own_copy(trained) if config.train.keeps_rollout_copy else trained
    needs_reference = algorithm.needs.initial_value != "none"
    initial = runtime.engine_copy(base) if needs_reference and runtime.sharded else None
    learner = Learner(
        policy,
        tokenizer.pad_token_id,
        algorithm,
        config.train,
        config.steps,
        ledger or Ledger(),
        keep_reference=config.eval.kl_samples > 0,
        seed=config.seed,
        ranks=runtime,
    )
    engine_of = runtime.engines(config, base, tokenizer)  # after the learner: ranks hold shards
    engine = engine_of(behaviour)
    reference = initial or learner.reference if needs_reference else None
    gathers = runtime.sharded and runtime.local_engines
    parts = WorkerParts(
        learner=learner,
        weight_sync=WeightSync(engine, policy, config.train, sharded=gathers),
        engine=engine,
        eval_engine=engine_of(trained),
        reference_engine=None if reference is None else engine_of(reference),
        environments=environments,
    )
    return _proxies(runtime, parts) if runtime.sharded else parts


def _proxies(ranks: Any, parts: WorkerParts) -> WorkerParts:
    """Make this rank's parts callable; return proxies for all ranks' parts, which rank 0 uses."""
    from experiments.runtime import torchrun_parts as proxy

    kind = proxy.ShardedEngine if ranks.local_engines else proxy.SyncedEngine
    shared: dict[str, Any] = {
        name: kind(ranks, name, engine, parts.learner.policy)
        for name in ("engine", "eval_engine", "reference_engine")
        if (engine := getattr(parts, name)) is not None
    }
    shared["learner"] = proxy.TorchrunLearner(ranks, "learner", parts.learner)
    shared["weight_sync"] = proxy.TorchrunWeightSync(ranks, "weight_sync", parts.weight_sync)
    if ranks.local_engines and parts.environments is not None:
        judges, numbers = proxy.RankJudges(ranks, parts.environments.make), count()

        def make() -> Environment:
            number = next(numbers)
            return proxy.TorchrunJudge(ranks, number, judges.environment(number))

        shared["environments"] = replace(parts.environments, make=make)
    if ranks.is_rank_zero:
        ranks.raise_start_errors()
    return replace(parts, **shared)
