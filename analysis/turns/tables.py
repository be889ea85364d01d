"""turns.csv, turn_differences.csv and turn_curve.csv: conversations of groups, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load.groups import Group
from analysis.metrics.evaluated_models import EvaluatedModel
from analysis.metrics.scores import ScoreGrid, stack_seeds
from analysis.stats.curves import X_AXES, spend_at_step
from analysis.stats.differences import difference_table, paired_differences
from analysis.stats.tables import grid_interval
from analysis.turns.counts import counts_at, has_conversations, numbers, solved_at, turn_limit
from analysis.turns.scores import (
    TurnPlan,
    solved_in,
    solved_scores,
    turn_metrics,
    turn_scores,
)

TURN_TABLES = ("turns.csv", "turn_differences.csv", "turn_curve.csv")
BUDGETS = (1, 2, 4)  # in mean tokens of a conversation, of the group with the longest ones
ENOUGH = 2  # times a budget that a problem's conversations have in all, so that it ends first


@dataclass(frozen=True)
class TurnGroup:
    """An evaluated model with its conversations' scores."""

    label: str
    step: int
    turns: int
    seeds: tuple[int | None, ...]
    grids: dict[str, ScoreGrid]


def turn_tables(
    models: Sequence[EvaluatedModel], groups: Sequence[Group], ks: Sequence[int]
) -> dict[str, pd.DataFrame]:
    """Return TURN_TABLES; tables without rows if no run has conversations.

    - turns.csv: label, seeds, step, turns (the most answers), metric, mean, low, high, problems.
      Metrics are those of `analysis.turns.scores`, of each model where they are defined.
    - turn_differences.csv: the columns of differences.csv, of the trained models.
    - turn_curve.csv: label, seeds, the X_AXES, turn, mean, low, high: the solve rate by turn at
      each evaluation of a group.
    """
    if not any(has_conversations(run) for model in models for run in model.runs):
        return dict.fromkeys(TURN_TABLES, pd.DataFrame())
    plan = turn_plan(models, ks)
    scored = [turn_group(model, plan) for model in models]
    trained = [group for group in scored if group.step > 0]
    measured = set().union(*(group.grids for group in scored))
    metrics = [metric.name for metric in turn_metrics(plan) if metric.name in measured]
    tables = (
        _mean_table(scored, metrics),
        difference_table(paired_differences(trained, metrics)),
        turn_curve(groups),
    )
    return dict(zip(TURN_TABLES, tables, strict=True))


def turn_plan(models: Sequence[EvaluatedModel], ks: Sequence[int]) -> TurnPlan:
    """Return what the models are measured by.

    The answers in all are k · T, for the k of pass@k and each number of turns T above 1. Budgets
    are BUDGETS, those for which every model has enough conversations.
    """
    limits = sorted({turn_limit(run) for model in models for run in model.runs})
    answers = sorted({k * turns for turns in limits if turns > 1 for k in ks})
    measured = [model for model in models if not model.is_base] or models
    lengths, totals = zip(*(_mean_tokens(model) for model in measured), strict=True)
    budgets = [round(many * max(lengths)) for many in BUDGETS]
    fitting = tuple(b for b in dict.fromkeys(budgets) if 0 < ENOUGH * b <= min(totals))
    return TurnPlan(limits[-1], tuple(answers), fitting)


def _mean_tokens(model: EvaluatedModel) -> tuple[float, float]:
    """Return the mean tokens of a conversation, and of all of a problem's conversations."""
    counts = [counts_at(run, model.step) for run in model.runs]
    names = ("right_tokens", "wrong_tokens")
    tokens = [sum(one) for table in counts for name in names for one in numbers(table[name])]
    problems = sum(map(len, counts))
    conversations = sum(int(table["conversations"].sum()) for table in counts)
    if not conversations:  # the judge failed on everything
        return 0.0, 0.0
    return sum(tokens) / conversations, sum(tokens) / problems


def turn_group(model: EvaluatedModel, plan: TurnPlan) -> TurnGroup:
    """Return a model's scores in the metrics of its conversations."""
    by_seed = [turn_scores(counts_at(run, model.step), plan) for run in model.runs]
    turns = max(turn_limit(run) for run in model.runs)
    return TurnGroup(model.label, model.step, turns, model.seeds, stack_seeds(model.seeds, by_seed))


def _mean_table(groups: Sequence[TurnGroup], metrics: Sequence[str]) -> pd.DataFrame:
    rows = []
    for group in groups:
        for metric in (name for name in metrics if name in group.grids):
            grid = group.grids[metric]
            ends = grid_interval(grid, metric)
            problems = int((grid.weights > 0).any(axis=0).sum())
            key = (group.label, len(group.seeds), group.step, group.turns, metric)
            rows.append((*key, ends.mean, ends.low, ends.high, problems))
    columns = ["label", "seeds", "step", "turns", "metric", "mean", "low", "high", "problems"]
    return pd.DataFrame(rows, columns=columns)


def turn_curve(groups: Sequence[Group]) -> pd.DataFrame:
    """Return turn_curve.csv; an evaluation is averaged over the runs that have it."""
    rows = []
    for group in groups:
        for step in sorted({step for run in group.runs for step in run.evaluated_steps}):
            runs = [run for run in group.runs if step in run.evaluated_steps]
            spent = [np.mean([spend_at_step(run, step, x) for run in runs]) for x in X_AXES]
            scores = [solved_scores(solved_at(run, step)) for run in runs]
            grids = stack_seeds(range(len(runs)), scores)
            for turn in range(1, len(grids) + 1):
                metric = solved_in(turn)
                ends = grid_interval(grids[metric], metric)
                key = (group.label, len(runs), *spent, turn)
                rows.append((*key, ends.mean, ends.low, ends.high))
    columns = ["label", "seeds", *X_AXES, "turn", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=columns)
