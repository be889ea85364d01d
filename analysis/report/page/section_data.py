"""What the page shows of a section: tables as text, figures as SVG, programs packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.load.settings import differing_settings, shared_settings
from analysis.metrics.definitions import DISTINCT
from analysis.report import render
from analysis.report.headline import Answer, headlines
from analysis.report.page import figures, samples
from analysis.report.section import Section


def section_context(
    section: Section,
    said: Sequence[Answer],
    tables: Mapping[str, pd.DataFrame],
    place: str,
    share: float,
) -> dict[str, Any]:
    """The template's names; `said` is the answer, and `share` of the page's room for programs is
    this section's."""
    results = tables["table.csv"]
    context = {
        "name": section.name,
        "place": place,
        "groups": len(section.groups),
        "ended": len(section.ends),
        "notes": section.notes,
        "answer": said,
        "least": section.ks[0],
        "most": section.ks[-1],
        "matrices": [],
        "short": len(section.ends) > render.INTERVALS_IN_MATRIX,
        "facts": shared_settings(section.runs),
        "settings": differing_settings(section.groups),
        "runs": tables["runs.csv"].to_dict("records"),
        "results": results.to_dict("records"),
        "figures": [],
        "way": "–",
    }
    if not section.stages:
        return context
    explored, kept = samples.explorer(section, share)
    return (
        context
        | _section_figures(section, tables)
        | {
            "equal": render.equal_budget_cells(tables["equal_budget.csv"], headlines(section)),
            "matrices": render.matrices(section),
            "power": render.power_cells(tables["power.csv"], headlines(section)),
            "way": render.way(results, section.ks),
            "evaluated": render.evaluated(results),
            "metrics": render.measured_metrics(results, section.ks),
            "budgets": render.budget_cells(results),
            "costs": render.cost_cells(tables["costs.csv"]),
            "health": tables["health.csv"].to_dict("records"),
            "difficulties": render.difficulty_cells(tables["difficulty.csv"]),
            "verdicts": render.verdict_cells(tables["verdicts.csv"].set_index("label")),
            "packed": samples.packed({"matrix": samples.matrix(section), "explorer": explored}),
            "kept": kept,
        }
    )


def _section_figures(section: Section, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The figures, how each group is drawn, and how many of how many groups are."""
    results, curve, ks = tables["table.csv"], tables["curve.csv"], section.ks
    shown = figures.drawn(results, ks)
    bases = set(results.loc[results["step"] == 0, "label"])
    style = figures.styles(shown, bases & set(shown))
    metrics = list(dict.fromkeys(["pass@1", f"pass@{ks[-1]}", DISTINCT]))
    drawn = (
        figures.headline(results, ks, style),
        figures.learning(section.rewards, curve, metrics, style, section.window),
        figures.pass_at_k(tables["pass_at_k.csv"], style),
    )
    trained = int((results["step"] > 0).sum())
    fewer = trained > figures.MOST_DRAWN
    return {
        "figures": [figure for figure in drawn if figure],
        "style": style,
        "undrawn": (figures.MOST_DRAWN, trained) if fewer else None,
    }
