"""How a run is distributed: where its learner, its engines and its judges run.

`Runtime` is the interface. `SingleProcess` (`runtime=sync`), `Torchrun`, `Ray` and `TorchrunRay`
implement it. `WorkerParts` are what learns, generates and judges: one process has one of each, and
so has every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from envs.command_line import load_function
from experiments.config.schema import RunConfig
from experiments.engines import open_engines
from experiments.engines.base import Engine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.policy import Policy, RankGroup, SingleRank
from experiments.rollout.rollouts import BatchSource
from experiments.run_dir.ledger import Ledger
from experiments.runtime.judges import Environments, open_environments


class Runtime(RankGroup, Protocol):
    """A learner's ranks, and the engines and judges that work for them."""

    local_engines: bool  # whether each rank has an engine and a judge of its own

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """Open the judges of a run; they close with the block. Raises UserError."""

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`. Raises UserError."""

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        """Return a function to call before batch `step` is collected.

        It starts that batch and later ones where their weights exist already.
        """

    def proxies(self, parts: WorkerParts) -> WorkerParts:
        """Return the parts that the loop uses: on rank 0 of several, proxies for all ranks'."""


class LocalWorkers:
    """Engines and judges beside the learner, in its process."""

    local_engines = True

    environments = staticmethod(open_environments)

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        return open_engines(config, policy, tokenizer)

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        """Nothing is prefetched: the process does one thing at a time."""
        return lambda step: None

    def proxies(self, parts: WorkerParts) -> WorkerParts:
        return parts


class SingleProcess(LocalWorkers, SingleRank):
    """`runtime=sync`: one process does everything."""


SINGLE_PROCESS = SingleProcess()


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
    given = (policy, tokenizer.pad_token_id, algorithm, config.train, config.steps)
    keeps = config.eval.kl_samples > 0
    ledger = ledger or Ledger()
    learner = Learner(*given, ledger, keep_reference=keeps, seed=config.seed, ranks=runtime)
    engine_of = runtime.engines(config, base, tokenizer)  # after the learner: ranks hold shards
    engine = engine_of(behaviour)
    reference = initial or learner.reference if needs_reference else None
    gathers = runtime.sharded and runtime.local_engines
    sync = WeightSync(engine, policy, config.train, sharded=gathers)
    eval_engine = engine_of(trained)
    reference_engine = None if reference is None else engine_of(reference)
    engines = (engine, eval_engine, reference_engine)
    return runtime.proxies(WorkerParts(learner, sync, *engines, environments))
