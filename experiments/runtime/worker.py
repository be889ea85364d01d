"""The parts that learn, generate and judge: one process has one of each, and so has every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envs.import_by_name import load_function
from experiments.engines.base import Engine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.rollout.environments import Environments
from experiments.run_dir.ledger import Ledger

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig
    from experiments.policy.policy import Policy
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


def generation_policy(config: RunConfig, base: Policy, trained: Policy, runtime: Runtime) -> Policy:
    """Return the policy that an engine of the trained weights generates with.

    It is a copy if the engine takes no adapter, and always if the trained weights are sharded.
    vLLM takes an adapted policy's weights one by one, as they are computed.
    """
    adapter = config.engine.name == "hf" and config.model.adapter != "none"
    if adapter or runtime.sharded:
        return runtime.engine_copy(base)
    return trained


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
    policy = loading.trained_policy(base, config)
    trained = generation_policy(config, base, policy, runtime)
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
    parts = WorkerParts(
        learner=learner,
        weight_sync=WeightSync(
            engine, policy, config.train, sharded=runtime.sharded and runtime.local_engines
        ),
        engine=engine,
        eval_engine=engine_of(trained),
        reference_engine=None if reference is None else engine_of(reference),
        environments=environments,
    )
    if not runtime.sharded:
        return parts
    from experiments.runtime.torchrun import Torchrun, TorchrunRay
    from experiments.runtime.torchrun_proxies import register_parts

    assert isinstance(runtime, Torchrun | TorchrunRay)

    proxies = register_parts(runtime, parts)
    if runtime.is_rank_zero:
        runtime.raise_start_errors()
    return proxies
