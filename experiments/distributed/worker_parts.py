"""The parts that do a run's work: one process has one of each, and so has every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envs.import_by_name import load_function
from experiments.distributed.single_process import SINGLE_PROCESS, SingleProcess
from experiments.engines.base import Engine
from experiments.engines.factory import written_from
from experiments.engines.weight_sync import WeightSync
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.rollout.environments import Environments
from experiments.run_dir.budget import Ledger

if TYPE_CHECKING:
    from torch import nn

    from experiments.config.schema import RunConfig


@dataclass
class WorkerParts:
    """The parts that do a run's work; every rank has its own."""

    learner: Learner
    writer: WeightSync
    engine: Engine
    eval_engine: Engine
    reference_engine: Engine | None  # where the algorithm needs initial values
    environments: Environments


def working_parts(
    config: RunConfig,
    model: nn.Module,
    tokenizer: object,
    environments: Environments,
    ranks: SingleProcess = SINGLE_PROCESS,
    ledger: Ledger | None = None,
) -> WorkerParts:
    """They begin with the weights of `model`; with several ranks they stand for all of them."""
    algorithm = load_function(config.algo.core, "algo.core")(config.algo, config.task.reward.high)
    policy = loading.policy_of(model, config)
    trained = written_from(config, model, policy, ranks)
    behaviour = loading.own_copy(trained) if config.train.stale else trained
    asks = algorithm.needs.initial_value != "none"
    base = ranks.copy_of(model) if asks and ranks.sharded else None
    learner = Learner(
        policy,
        tokenizer.pad_token_id,
        algorithm,
        config.train,
        config.steps,
        ledger or Ledger(),
        keep_reference=config.eval.kl_samples > 0,
        seed=config.seed,
        ranks=ranks,
    )
    engine_of = ranks.engines(config, model, tokenizer)  # after it: ranks hold shards by now
    engine = engine_of(behaviour)
    work = WorkerParts(
        learner=learner,
        writer=WeightSync(engine, policy, config.train, spread=ranks.sharded and ranks.writes),
        engine=engine,
        eval_engine=engine_of(trained),
        reference_engine=engine_of(base or learner.reference) if asks else None,
        environments=environments,
    )
    if not ranks.sharded:
        return work
    from experiments.distributed.torchrun_proxies import spread

    together = spread(ranks, work)
    if ranks.main:
        ranks.check_begun()
    return together
