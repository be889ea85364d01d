"""All gradients on all batches, one process for each policy's."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from algorithms.base import Algorithm
from experiments.anatomy.batches import (
    Batches,
    generate,
    made_groups,
    opened,
    policy_at,
    policy_folders,
    quality,
)
from experiments.anatomy.gradients import Bench, cosines, gram, group_pushes, weight_shares
from experiments.anatomy.objectives import Objective, objectives, reference_ages
from experiments.anatomy.options import Options
from experiments.build import Parts
from experiments.rollout.initial_values import InitialValues
from experiments.run_dir.ledger import Ledger
from experiments.studies.cli import say

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Stage:
    """All that was measured with the batches of one policy."""

    name: str
    steps: int
    solved: float  # pass@1
    distinct: float  # share of 5 accepted programs
    rows: list[dict[str, Any]]  # for each situation and objective
    cosines: dict[str, Tensor]  # situation → (objectives, objectives), mean over seeds
    commit: str


@dataclass(frozen=True)
class Anatomy:
    """All that the page shows."""

    stages: list[Stage]
    command: str  # of the run that made the policies
    minutes: float

    @property
    def rows(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([row for stage in self.stages for row in stage.rows])

    @property
    def cosines(self) -> dict[str, Tensor]:
        return {name: c for stage in self.stages for name, c in stage.cosines.items()}


def measure(options: Options, names: Sequence[str]) -> Anatomy:
    """Train the policies, then measure at each of them in a process of its own."""
    began = time.perf_counter()
    folders, command = policy_folders(options)
    stages = {"base": 0, "half-trained": options.half, "collapsed": options.collapsed}
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        pending = [
            pool.submit(measure_stage, options, names, stage, step, folders)
            for stage, step in stages.items()
        ]
        results = [each.result() for each in pending]
    return Anatomy(results, command, (time.perf_counter() - began) / 60)


def measure_stage(
    options: Options, names: Sequence[str], stage: str, step: int, folders: Mapping[int, Path]
) -> Stage:
    """Generate one policy's batches and take all gradients on them, fresh and stale."""
    torch.set_num_threads(1)
    chosen = {name: objectives()[name] for name in names}
    base, rollout = policy_at(0, folders), policy_at(step, folders)
    later = policy_at(step + options.lag, folders)
    rows: list[dict[str, Any]] = []
    tables: dict[str, Tensor] = {}
    with opened(options) as (parts, records, config):
        batches = generate(parts, config, rollout, options)
        solved, distinct = quality(batches.pool)
        say(f"{stage}: {step} steps, pass@1 {solved:.3f}, distinct of 5 {distinct:.3f}")
        for age, policy in (("fresh", rollout), ("stale", later)):
            bench = Bench(base, rollout, policy, parts.learner.pad, Ledger())
            benches: dict[int | None, Bench] = {None: bench}
            for ago in reference_ages():
                moved = policy_at(max(0, policy.version - ago), folders)
                benches[ago] = replace(bench, reference=moved)
            situation = f"{stage}, {age}"
            found, tables[situation] = compare(situation, benches, batches, chosen, parts, options)
            rows += found
        return Stage(stage, step, solved, distinct, rows, tables, str(records.info["commit"]))


def compare(
    situation: str,
    benches: Mapping[int | None, Bench],
    batches: Batches,
    chosen: Mapping[str, Objective],
    parts: Parts,
    options: Options,
) -> tuple[list[dict[str, Any]], Tensor]:
    """Return the rows of one situation, and the cosines of all pairs, means over seeds.

    `benches`: by the age of a reference that has moved; None: with the base.
    """
    size, stale = options.group, benches[None].rollout is not benches[None].policy
    made = made_groups(batches.pool, size, options.made)
    known: dict[Any, dict[str, Tensor]] = defaultdict(dict)
    rows, gradients = [], []
    for done, (name, objective) in enumerate(chosen.items(), 1):
        algorithm, mixed = objective.make(), objective.data == "mixed"
        moved, max_lag = objective.reference_age, algorithm.needs.max_lag
        bench = benches[moved]
        row: dict[str, Any] = {"situation": situation, "objective": name, "data": objective.data}
        rows.append(row)
        if stale and max_lag is not None and max_lag < options.lag:
            gradients += [torch.zeros(bench.policy.model.num_parameters())] * options.seeds
            continue
        for seed in range(options.seeds):
            samples = objective.samples(batches.own[seed], batches.mixed[seed], size)
            values = initial_values(algorithm, parts)
            found = bench.effect(algorithm, samples, size, values, known[mixed, seed, moved])
            gradients.append(found.gradient)
            row[f"norm {seed}"] = float(found.gradient.double().norm())
            for part, share in weight_shares(found.weights, samples).items():
                row[part] = row.get(part, 0.0) + share / options.seeds
        if made and not stale:
            samples = objective.samples(made, made, size)
            values = initial_values(algorithm, parts)
            found = bench.effect(algorithm, samples, size, values, known["made", moved])
            row |= group_pushes(found, made)
        if done % 10 == 0 or done == len(chosen):
            say(f"{situation}: {done}/{len(chosen)} objectives")
    table = cosines(gram(gradients)).view(len(chosen), options.seeds, len(chosen), options.seeds)
    seeds = range(options.seeds)
    for number, row in enumerate(rows):
        pairs = [float(table[number, a, number, b]) for a in seeds for b in seeds if a < b]
        row["between batches"] = sum(pairs) / len(pairs) if pairs else math.nan
    return rows, torch.stack([table[:, seed, :, seed] for seed in seeds]).nanmean(0)


def initial_values(algorithm: Algorithm, parts: Parts) -> InitialValues | None:
    """Return the estimator of the prompts' soft values, if the algorithm needs one."""
    needs = algorithm.needs
    if needs.initial_value == "none":
        return None
    assert parts.initial_values is not None
    reference = parts.initial_values.reference
    return InitialValues(reference, algorithm.initial_value_beta, needs.initial_value == "online")
