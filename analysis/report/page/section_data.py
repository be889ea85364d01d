"""The template's data for a section: tables as text, figures as SVG, programs packed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.load.hyperparameters import (
    commands,
    descriptions,
    hyperparameters,
    shared_values,
)
from analysis.load.settings import differing_settings, shared_settings
from analysis.metrics.definitions import DISTINCT
from analysis.report import render
from analysis.report.experiment import Experiment, Section
from analysis.report.headline import headline_metrics
from analysis.report.page import figures, samples
from analysis.report.page.fits import fit_figure, fit_tables
from analysis.report.page.points import figure_points
from analysis.report.page.training_figure import training_figure
from analysis.report.page.turns import turn_figure, turn_page_tables
from analysis.report.power_tables import power_tables
from analysis.report.single_run import single_run
from analysis.turns.tables import turn_plan


def section_context(experiment: Experiment, section: Section, page_share: float) -> dict[str, Any]:
    """Return the template's variables; `page_share` is the section's share of room for programs."""
    tables, results = section.tables, section.results
    context = {
        "name": section.name,
        "slug": section.slug,
        "groups": len(experiment.groups),
        "trained_groups": len(experiment.trained),
        "on_training": sum(group.runs[0].on_training_problems for group in experiment.groups),
        "notes": section.notes,
        "headlines": section.headlines,
        "least_k": section.ks[0],
        "matrices": [],
        "margin": experiment.plan.margin,
        "contrasts": len(experiment.contrasts) > 0,
        "short": len(experiment.trained) > render.INTERVALS_IN_MATRIX,
        "packed_study": experiment.packed,
        "shared_settings": shared_settings(experiment.runs),
        "settings": differing_settings(experiment.groups),
        "names": descriptions(experiment.groups),
        "hyperparameters": hyperparameters(experiment.groups),
        "shared_values": shared_values(experiment.groups),
        "commands": commands(experiment.groups),
        "runs": render.records(tables["runs.csv"]),
        "results": render.records(results),
        "turns": [],
        "further": [
            (f"{temperature:g}", render.further_cells(results, section.ks, temperature))
            for temperature in section.temperatures
        ],
        "figures": [],
        "points": "",
        "run": None,
        "change": "–",
    }
    if not experiment.models:
        return context
    packed, left_out = {"matrix": samples.matrix_data(experiment)}, ""
    if not experiment.packed:
        packed["explorer"], left_out = samples.explorer_data(experiment, page_share)
    metrics = headline_metrics(experiment)
    turns = tables["turns.csv"]
    if len(turns):
        plan = turn_plan(experiment.models, experiment.ks)
        context["turns"] = turn_page_tables(turns, plan)
    return (
        context
        | _figure_context(experiment, tables)
        | {
            "equal_budget": render.equal_budget_cells(tables["equal_budget.csv"], metrics),
            "fits": fit_tables(tables["curve_fits.csv"], tables["curve_fit_differences.csv"]),
            "letters": render.letter_cells(tables["letters.csv"], metrics),
            "matrices": render.difference_matrices(experiment),
            "power": power_tables(tables["power.csv"], metrics, experiment.named_contrasts),
            "change": render.change_from_base(results, section.ks),
            "evaluation_size": render.evaluation_size(results),
            "metrics": render.measured_metrics(results, section.ks),
            "budgets": render.budget_cells(results),
            "costs": render.cost_cells(tables["costs.csv"]),
            "health": render.records(tables["health.csv"]),
            "difficulties": render.difficulty_cells(tables["difficulty.csv"]),
            "verdicts": render.verdict_cells(tables["verdicts.csv"].set_index("label")),
            # The page of a single run is about its programs.
            "run": None if experiment.packed else single_run(experiment),
            "training_packed": experiment.packed and experiment.rewards["mean"].notna().any(),
            "packed": samples.pack(packed),
            "left_out": left_out,
        }
    )


def _figure_context(experiment: Experiment, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the figures, each group's style, and the numbers of drawn and of all groups."""
    results, curve, ks = tables["table.csv"], tables["curve.csv"], experiment.ks
    labels = figures.drawn_labels(results, ks)
    bases = set(results.loc[results["step"] == 0, "label"])
    styles = figures.group_styles(labels, bases & set(labels))
    metrics = list(dict.fromkeys(["pass@1", f"pass@{ks[-1]}", DISTINCT]))
    all_figures = (
        figures.headline_figure(results, ks, styles),
        figures.learning_figure(
            experiment.rewards, curve, metrics, styles, experiment.reward_window
        ),
        training_figure(tables["training.csv"], styles, experiment.reward_window),
        figures.pass_at_k_figure(tables["pass_at_k.csv"], styles),
        fit_figure(experiment.fits, styles),
        turn_figure(tables["turn_curve.csv"], styles),
    )
    drawn = [figure for figure in all_figures if figure]
    trained = int((results["step"] > 0).sum())
    return {
        "figures": drawn,
        "points": samples.pack(figure_points(drawn)),
        "styles": styles,
        "drawn_of": (figures.MOST_DRAWN, trained) if trained > figures.MOST_DRAWN else None,
    }
