"""Tables for people: what `analysis.stats.tables` computed as cells, Markdown and terminal tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.load.run_folders import readable
from analysis.metrics.definitions import DISTINCT, TITLES, Metric, reported_metrics
from analysis.report.headline import headlines, matrix
from analysis.report.markdown import table as markdown_table
from analysis.stats.tables import AREA, BUDGET_TITLES, PHASE_TITLES

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from analysis.report.headline import Answer
    from analysis.report.section import Section
    from analysis.report.sections import Part

NOTHING = "–"
MATRIX_LABELS = 30
INTERVALS_IN_MATRIX = 8  # labels up to which a matrix has room for them
AXIS_WORDS = {
    "generated_tokens": "generated and reference tokens",
    "judged_programs": "judged programs",
    "wall_time": "wall time without evaluations",
}
BUDGET_HEADINGS = BUDGET_TITLES | {"wall_s": "wall time (min)"}
Cells = tuple[list[str], list[list[str]]]  # heading and rows
TERMINAL_DIVERSITY = (DISTINCT, "edit_distance")


def number(value: Any, digits: int = 3) -> str:
    """Fixed digits for measured numbers; a dash for what was not measured."""
    return NOTHING if missing(value) else f"{value:.{digits}f}"


def count(value: Any) -> str:
    """Whole numbers with separators: 512,000."""
    return NOTHING if missing(value) else f"{value:,.0f}"


def plural(how_many: int | str, noun: str) -> str:
    return f"{how_many} {noun}" if str(how_many) == "1" else f"{how_many} {noun}s"


def minutes(seconds: Any) -> str:
    return NOTHING if missing(seconds) else f"{seconds / 60:.1f}"


def missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def interval(row: Mapping[str, Any], name: str, digits: int = 3, form: str = "[{}, {}]") -> str:
    """The ends of the interval of `name`, "" where there is none."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if missing(low) else form.format(number(low, digits), number(high, digits))


def with_interval(row: Mapping[str, Any], name: str) -> str:
    return f"{number(row[name])} {interval(row, name)}".strip()


def measured_metrics(results: pd.DataFrame, ks: Sequence[int]) -> list[Metric]:
    """The metrics that have a value in at least one row."""
    return [metric for metric in reported_metrics(ks) if results[metric.name].notna().any()]


def result_cells(results: pd.DataFrame, ks: Sequence[int]) -> Cells:
    """Heading and rows of the result table as text."""
    shown = measured_metrics(results, ks)
    heading = ["", "seeds", "step", *(metric.title for metric in shown), "pass@1 / base"]
    rows = [
        [
            row["label"],
            str(row["seeds"]),
            str(row["step"]),
            *(with_interval(row, metric.name) for metric in shown),
            number(row.get("gain"), 2),
        ]
        for row in results.to_dict("records")
    ]
    return heading, rows


def budget_cells(results: pd.DataFrame) -> Cells:
    """Heading and rows of what each group spent, mean over seeds."""
    trained = results[results["step"] > 0]
    columns = {
        name: heading
        for name, heading in BUDGET_HEADINGS.items()
        if name in trained and trained[name].notna().any()
    }
    rows = [
        [
            row["label"],
            *(minutes(row[name]) if name == "wall_s" else count(row[name]) for name in columns),
        ]
        for row in trained.to_dict("records")
    ]
    return ["", *columns.values()], rows


def difficulty_cells(table: pd.DataFrame) -> Cells:
    """Heading and rows of `analysis.stats.tables.difficulty_table`, a column per tier and k."""
    if not len(table):
        return [], []
    keys = [(d, m) for d in table["difficulty"].cat.categories for m in table["metric"].unique()]
    found = {(r["label"], r["difficulty"], r["metric"]): r for r in table.to_dict("records")}
    sizes = table.groupby("difficulty", observed=True)["problems"].max()
    heading = ["", *(f"{d} ({sizes[d]}) {m}" for d, m in keys)]
    rows = [
        [label, *(number(found.get((label, d, m), {}).get("mean")) for d, m in keys)]
        for label in dict.fromkeys(table["label"])
    ]
    return heading, rows


def matrices(section: Section) -> list[tuple[str, Cells]]:
    """Title and cells of the differences in each headline metric that two groups or more have;
    none beyond MATRIX_LABELS."""
    if len(section.ends) > MATRIX_LABELS:
        return []
    room = len(section.ends) <= INTERVALS_IN_MATRIX
    found = [(metric, matrix(section, metric, room)) for metric in headlines(section)]
    return [(TITLES.get(metric, metric), cells) for metric, cells in found if len(cells[1]) > 1]


def power_cells(table: pd.DataFrame, shown: Sequence[str]) -> Cells:
    """Heading and rows of power.csv for these metrics."""
    if not len(table):
        return [], []
    table = table[table["metric"].isin(shown)]
    parts = ("seeds", "problems", "interaction", "sampling")
    more = ("seeds", "samples", "problems")
    wish = f"{table['wish'].iloc[0]:g}"
    heading = ["", "metric", "seen in 80 %", *(f"{part}, % of variance" for part in parts)]
    heading += [f"{what} to see {wish}" for what in more]
    rows = [
        [
            f"{row['a']} − {row['b']}",
            TITLES.get(row["metric"], row["metric"]),
            number(row["smallest_difference"]),
            *(number(100 * row[f"of_{part}"], 0) for part in parts),
            *(_how_many(row[f"{what}_needed"]) for what in more),
        ]
        for row in table.to_dict("records")
    ]
    return heading, rows


def _how_many(needed: float) -> str:
    return "no number" if needed == math.inf else count(needed)


def equal_budget_cells(table: pd.DataFrame, shown: Sequence[str]) -> list[tuple[str, Cells]]:
    """Title and cells of equal_budget.csv, for each axis; these metrics and what they average."""
    found = []
    for (axis, budget), part in table.groupby(["axis", "budget"], sort=False) if len(table) else ():
        names = [name for name in (*shown, AREA) if name in set(part["metric"])]
        rows = []
        for label in part["label"].unique():
            own = part[part["label"] == label].set_index("metric")
            rows.append([label, *(_with_tier(own, name) for name in names)])
        spent = f"{minutes(budget)} minutes" if axis == "wall_time" else count(budget)
        title = f"{AXIS_WORDS[axis]}: {spent}"
        found.append((title, (["", *(TITLES.get(name, name) for name in names)], rows)))
    return found


def _with_tier(own: pd.DataFrame, name: str) -> str:
    if name not in own.index:
        return NOTHING
    row = own.loc[name]
    shown = f"{number(row['mean'])} [{number(row['low'], 2)}, {number(row['high'], 2)}]"
    return shown if missing(row["tier"]) else f"{shown} tier {row['tier']:.0f}"


def cost_cells(table: pd.DataFrame) -> Cells:
    """Heading and rows of costs.csv: minutes by phase, seconds a step, peak memory."""
    if not len(table):
        return [], []
    spent = {f"{phase}_s": words for phase, words in PHASE_TITLES.items()}
    spent |= {"trained_s": "all of training", "evaluate_s": "evaluating (not charged)"}
    shown = [name for name in spent if table[name].notna().any() and (table[name] > 0).any()]
    memory = [name for name in ("peak_mb", "gpu_peak_mb") if table[name].notna().any()]
    titles = {"peak_mb": "peak memory, MB", "gpu_peak_mb": "peak GPU memory, MB"}
    heading = ["", *(spent[name] for name in shown), "seconds a step", "judge CPU, min"]
    rows = [
        [
            row["label"],
            *(minutes(row[name]) for name in shown),
            number(row["step_s"], 2),
            minutes(row["judge_cpu_s"]),
            *(count(row[name]) for name in memory),
        ]
        for row in table.to_dict("records")
    ]
    return [*heading, *(titles[name] for name in memory)], rows


def verdict_cells(table: pd.DataFrame) -> Cells:
    """Heading and rows of `analysis.stats.tables.verdict_table`, in per cent."""
    heading = ["", *(name.lower().replace("_", " ") for name in table.columns)]
    rows = [
        [str(label), *(f"{100 * share:.1f}" for share in row)] for label, row in table.iterrows()
    ]
    return heading, rows


def way(results: pd.DataFrame, ks: Sequence[int]) -> str:
    """From where to where pass@k went, over all rows, for the least k."""
    name, ends = f"pass@{ks[0]}", []
    for rows in (results[results["step"] == 0], results[results["step"] > 0]):
        low, high = number(rows[name].min()), number(rows[name].max())
        ends.append(low if low == high else f"{low} to {high}")
    return f"{name} {' → '.join(ends)}"


def evaluated(results: pd.DataFrame) -> str:
    """On how many problems and samples the rows rest, in words."""
    sizes = results[["problems", "samples"]].drop_duplicates()
    if len(sizes) > 1:
        return "Problems or samples per problem differ between rows."
    return f"{sizes['problems'].iloc[0]} problems, {sizes['samples'].iloc[0]} samples each."


def markdown(parts: Sequence[Part], skipped: Sequence[str]) -> str:
    """table.md: results, budgets and caveats of each experiment."""
    written = list(skipped)
    for part in parts:
        results = part.results
        if len(parts) > 1:
            written.append(f"## {part.name}")
        if said := part.answer:
            written.append("\n".join(line for one in said for line in _items(one)))
        if len(results):
            written += [
                f"{evaluated(results)} Means over seeds, 95 % intervals in brackets.",
                markdown_table(*result_cells(results, part.ks)),
            ]
            budgets = budget_cells(results)
            if budgets[1]:
                spent = "Spent by the end of training, mean over seeds:"
                written += [spent, markdown_table(*budgets)]
        if part.notes:
            notes = "\n".join(f"- {sentence}" for sentence in part.notes)
            written += ["To bear in mind:", notes]
    return readable("\n\n".join(written)) + "\n"


def _items(said: Answer) -> list[str]:
    """As a list in Markdown, what is said of a metric within its item."""
    if not said.about:
        return [f"- {one}" for one in said.said]
    return [f"- **{said.about}**", *(f"  - {one}" for one in said.said)]


def terminal_table(results: pd.DataFrame, ks: Sequence[int]) -> Table:
    """The main metrics as a rich table, intervals in two digits below the means."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = [
        metric
        for metric in measured_metrics(results, ks)
        if metric.name.startswith("pass@") or metric.name in TERMINAL_DIVERSITY
    ]
    table = Table(box=box.SIMPLE_HEAD, show_lines=False, padding=(0, 1))
    # A run that stopped early, or a longer one, must not pass for its neighbours' equal.
    steps = results.loc[results["step"] > 0, "step"].nunique() > 1
    for heading in (
        "",
        *(["step"] if steps else []),
        "seeds",
        *(metric.title for metric in shown),
        "pass@1\n/ base",
    ):
        # Labels may be broken into lines, numbers not.
        justify = "right" if heading else "left"
        title = heading.replace(" of ", "\nof ").replace("edit ", "edit\n")
        table.add_column(title, justify=justify, no_wrap=bool(heading), overflow="fold")
    for row in results.to_dict("records"):
        cells = [
            f"{number(row[m.name])}\n[dim]{interval(row, m.name, 2, '{}–{}')}[/dim]" for m in shown
        ]
        counts = [str(row["step"])] * steps + [str(row["seeds"])]
        table.add_row(Text(row["label"]), *counts, *cells, number(row.get("gain"), 2))
    return table
