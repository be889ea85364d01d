"""What a run's configuration cannot combine: the checks that need more than a type.

They are made before anything heavy starts, for every job of a sweep before the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.corrections import BOUNDS
from experiments.errors import UserError

if TYPE_CHECKING:
    from algorithms.base import Needs
    from experiments.config import EngineConfig, RunConfig


def check(config: RunConfig, needs: Needs) -> None:
    """Raises UserError, which names the key, the value and what would be right."""
    _check_engine(config.engine)
    if config.model.adapter != "none":
        from experiments.learner.installed import check_peft

        check_peft()
    _check_combinations(config, needs)


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


def _check_combinations(c: RunConfig, needs: Needs) -> None:
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


def _check_ratio(c: RunConfig, needs: Needs, offline: int) -> None:
    t = c.train
    if t.correction != "none" and (not needs.behaviour or needs.anchored):
        raise UserError(
            f"train.correction={t.correction} under algo={c.algo.name}: it has no ratio to "
            "correct; use train.correction=none"
        )
    if t.correction != "none" and needs.average is not None:
        raise UserError(
            f"train.correction={t.correction} under algo={c.algo.name}: it has a correction of its "
            "own, against the average of its weights; use train.correction=none"
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
