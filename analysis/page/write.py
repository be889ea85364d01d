"""Write a report: the tables in four formats, the figures, and one page that holds them all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from analysis import (
    aggregate,
    breakdown,
    budgets,
    curves,
    design,
    differences,
    latex,
    render,
)
from analysis.costs import cost_table
from analysis.drawings import Drawing, drawn
from analysis.health import health
from analysis.metrics import metrics
from analysis.page import html
from analysis.page.context import section_context
from analysis.sections import Section

Tables = dict[str, pd.DataFrame]
OF_EVALUATIONS = (
    "table.csv",
    "differences.csv",
    "tiers.csv",
    "power.csv",
    "equal_budget.csv",
    "equal_budget_differences.csv",
    "thresholds.csv",
    "curve.csv",
    "pass_at_k.csv",
    "profile.csv",
    "difficulty.csv",
    "verdicts.csv",
)


def write(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> list[pd.DataFrame]:
    """Write the report into `out`; return the result table of each section.

    `skipped` are notes on what is in no section. Raises OSError if `out` cannot be written.
    """
    tables = [tables_of(section) for section in sections]
    out.mkdir(parents=True, exist_ok=True)
    for name in tables[0]:
        parts = [
            table[name].assign(experiment=section.name)
            for section, table in zip(sections, tables, strict=True)
        ]
        # Without rows a table has no types either, and would turn the others' counts into floats.
        together = pd.concat([part for part in parts if len(part)] or parts[:1])
        together.insert(0, "experiment", together.pop("experiment"))
        together.to_csv(out / name, index=False)
        _typed(together).to_parquet((out / name).with_suffix(".parquet"), index=False)
    results = [table["table.csv"] for table in tables]
    pairs = list(zip(sections, results, strict=True))
    (out / "table.md").write_text(render.markdown(pairs, skipped), encoding="utf-8")
    (out / "table.tex").write_text(latex.document(pairs), encoding="utf-8")
    places = folders(sections)
    parts = list(zip(sections, tables, places, strict=True))
    files = [
        _drawing(section, t, out / "figures" / place)
        for section, t, place in parts
        if section.stages
    ]
    with drawn(files):
        shown = [section_context(section, t, place, 1 / len(parts)) for section, t, place in parts]
    context = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "sections": shown,
        "skipped": skipped,
        "meanings": metrics(sorted({k for section in sections for k in section.ks})),
        "kl_steps": curves.KL_STEPS,
    }
    (out / "report.html").write_text(html.page(context), encoding="utf-8")
    return results


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Columns that Parquet has a type for: where texts and numbers are mixed, all are texts."""
    mixed = [name for name in table if table[name].dtype == object]
    return table.assign(**{name: table[name].astype("string") for name in mixed})


def folders(sections: Sequence[Section]) -> list[str]:
    """A name for each section that is safe in a path and in a link, no two alike."""
    names: list[str] = []
    for section in sections:
        name = re.sub(r"[^\w-]+", "-", section.name)[:80].strip("-") or "runs"
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names


def tables_of(section: Section) -> Tables:
    """File name → table; without an evaluation only that of the runs has rows."""
    of_runs = {
        "runs.csv": aggregate.run_table(section.groups),
        "costs.csv": cost_table(section.groups),
        "health.csv": health(section.groups, section.ks),
    }
    rows = section.stages
    if not rows:
        return of_runs | dict.fromkeys(OF_EVALUATIONS, pd.DataFrame())
    tables = (
        aggregate.result_table(rows),
        differences.difference_table(section.pairs),
        differences.tier_table(section.ends, section.pairs),
        design.design_table(section.ends, section.pairs, design.WISH),
        *budgets.equal_budget_tables(section.groups, section.ks),
        budgets.threshold_table(section.groups, section.ks) if section.ends else pd.DataFrame(),
        curves.evaluation_curve(section.groups, section.ks),
        aggregate.pass_at_k_table(rows),
        aggregate.profile_table(rows),
        breakdown.difficulty_table(rows),
        breakdown.verdict_table(rows).reset_index(),
    )
    return of_runs | dict(zip(OF_EVALUATIONS, tables, strict=True))


def _drawing(section: Section, tables: Tables, folder: Path) -> Drawing:
    window = curves.window(section.groups)
    labels = [*tables["table.csv"]["label"], *(group.label for group in section.groups)]
    return Drawing(
        folder,
        tuple(dict.fromkeys(labels)),
        curves.reward_curve(section.groups, window),
        window,
        tables["curve.csv"],
        tables["pass_at_k.csv"],
        tables["table.csv"],
    )
