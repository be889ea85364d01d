"""The parts that do a run's work: one process has one of each, and so has every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envs.named import load
from experiments.engines.base import Engine
from experiments.engines.select import written_from
from experiments.engines.writer import Writer
from experiments.learner import models
from experiments.learner.learner import Learner
from experiments.runs.ledger import Ledger
from experiments.runtimes.alone import ALONE, Alone
from experiments.samples.environments import Environments

if TYPE_CHECKING:
    from torch import nn

    from experiments.config import RunConfig


@dataclass
class Work:
    """The parts that do a run's work; every rank has its own."""

    learner: Learner
    writer: Writer
    engine: Engine
    eval_engine: Engine
    reference_engine: Engine | None  # where the algorithm needs initial values
    environments: Environments


def working_parts(
    config: RunConfig,
    model: nn.Module,
    tokenizer: object,
    environments: Environments,
    ranks: Alone = ALONE,
    ledger: Ledger | None = None,
) -> Work:
    """They begin with the weights of `model`; with several ranks they stand for all of them."""
    algorithm = load(config.algo.core, "algo.core")(config.algo, config.task.reward.high)
    policy = models.policy_of(model, config)
    trained = written_from(config, model, policy, ranks)
    behaviour = models.own_copy(trained) if config.train.stale else trained
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
    work = Work(
        learner=learner,
        writer=Writer(engine, policy, config.train, spread=ranks.sharded and ranks.writes),
        engine=engine,
        eval_engine=engine_of(trained),
        reference_engine=engine_of(base or learner.reference) if asks else None,
        environments=environments,
    )
    if not ranks.sharded:
        return work
    from experiments.runtimes.spread import spread

    together = spread(ranks, work)
    if ranks.main:
        ranks.check_begun()
    return together
