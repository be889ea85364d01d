"""Write a report: the tables as CSV and Markdown, the figures, and one page that holds them all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from analysis import aggregate, breakdown, budgets, curves, design, differences, plots, render
from analysis.answer import answer, headlines
from analysis.facts import facts, settings_that_differ
from analysis.metrics import metrics
from analysis.sections import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    results = [table["table.csv"] for table in tables]
    text = render.markdown(list(zip(sections, results, strict=True)), skipped)
    (out / "table.md").write_text(text, encoding="utf-8")
    places = folders(sections)
    shown = [
        section_context(section, table, place, draw(section, table, out / "figures" / place))
        for section, table, place in zip(sections, tables, places, strict=True)
    ]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    meanings = metrics(sorted({k for section in sections for k in section.ks}))
    context = {"made": made, "sections": shown, "skipped": skipped, "meanings": meanings}
    page = render.html(context | {"kl_steps": curves.KL_STEPS})
    (out / "report.html").write_text(page, encoding="utf-8")
    return results


def folders(sections: Sequence[Section]) -> list[str]:
    """A name for each section that is safe in a path and in a link, no two alike."""
    names: list[str] = []
    for section in sections:
        name = re.sub(r"[^\w-]+", "-", section.name)[:80].strip("-") or "runs"
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names


def tables_of(section: Section) -> Tables:
    """File name → table; without an evaluation only that of the runs has rows."""
    runs = aggregate.run_table(section.groups)
    rows = section.stages
    if not rows:
        return {"runs.csv": runs, **dict.fromkeys(OF_EVALUATIONS, pd.DataFrame())}
    tables = (
        aggregate.result_table(rows),
        differences.difference_table(section.pairs),
        differences.tier_table(section.ends, section.pairs),
        design.design_table(section.ends, section.pairs, design.WISH),
        *budgets.equal_budget_tables(section.groups, section.ks),
        budgets.threshold_table(section.groups) if section.ends else pd.DataFrame(),
        curves.evaluation_curve(section.groups),
        aggregate.pass_at_k_table(rows),
        aggregate.profile_table(rows),
        breakdown.difficulty_table(rows),
        breakdown.verdict_table(rows).reset_index(),
    )
    return {"runs.csv": runs, **dict(zip(OF_EVALUATIONS, tables, strict=True))}


def draw(section: Section, tables: Tables, folder: Path) -> list[tuple[str, str]]:
    """Write the section's figures; return for each its data URI and its caption."""
    if not section.stages:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    return [
        (render.data_uri(plots.save(figure, folder / name)[1]), caption)
        for name, figure, caption in figures(section, tables)
        if figure is not None
    ]


def figures(section: Section, tables: Tables) -> Iterator[tuple[str, Figure | None, str]]:
    """Name, figure (None where there is nothing to draw) and caption."""
    longest = max(len(run.metrics) for group in section.groups for run in group.runs)
    window = max(1, longest // 20)
    rewards, curve = curves.reward_curve(section.groups, window), tables["curve.csv"]
    labels = [*tables["table.csv"]["label"], *(group.label for group in section.groups)]
    style = plots.styles(dict.fromkeys(labels))
    at_k = plots.pass_at_k_curves(tables["pass_at_k.csv"], style)
    yield "pass_at_k", at_k, "pass@k before and after training"
    dots = plots.diversity_dots(tables["table.csv"], style)
    yield "diversity", dots, "Diversity before and after training, with 95 % intervals"
    kl = "pass@1 and diversity against the KL to the reference, from the base on"
    yield "kl", plots.kl_curves(curve, style), kl
    for x in curves.X_AXES:
        figure = plots.learning_curves(rewards, curve, x, window, style)
        yield f"curves_{x}", figure, f"Learning curves against {plots.X_TITLES[x]}"


def section_context(
    section: Section, tables: Tables, place: str, drawn: Sequence[tuple[str, str]]
) -> dict[str, object]:
    """What the template shows of a section."""
    results = tables["table.csv"]
    context = {
        "name": section.name,
        "place": place,
        "groups": section.groups,
        "notes": section.notes,
        "answer": answer(section),
        "matrices": [],
        "facts": facts(section.runs),
        "settings": settings_that_differ(section.groups),
        "runs": tables["runs.csv"].to_dict("records"),
        "results": results.to_dict("records"),
        "figures": drawn,
        "way": "–",
    }
    if not section.stages:
        return context
    return context | {
        "equal": render.equal_budget_cells(tables["equal_budget.csv"], headlines(section)),
        "matrices": render.matrices(section),
        "power": render.power_cells(tables["power.csv"], headlines(section)),
        "way": render.way(results, section.ks),
        "evaluated": render.evaluated(results),
        "metrics": render.measured_metrics(results, section.ks),
        "budgets": render.budget_cells(results),
        "difficulties": render.difficulty_cells(tables["difficulty.csv"]),
        "verdicts": render.verdict_cells(tables["verdicts.csv"].set_index("label")),
    }
