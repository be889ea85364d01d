"""Tables for readers: numbers as text, and the tables of a report as cells, Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from analysis.budgets import BUDGET_TITLES, COLUMNS, OFFLINE_TITLES, PHASE_TITLES
from analysis.findings import Finding
from analysis.groups import NOTHING, common_ks, samples_per_problem, spoken
from analysis.intervals import interval_columns
from analysis.metrics import TITLES, reported_metrics, scores_at_temperatures, stack_seeds
from analysis.runs import RunError, load_run
from envs.messages import readable

NO_WIDTH = 1e-9  # an interval narrower than this has no width beyond rounding
HEADINGS = (
    BUDGET_TITLES
    | OFFLINE_TITLES
    | {"wall_s": "wall time"}
    | {f"{phase}_s": title for phase, title in PHASE_TITLES.items()}
    | COLUMNS["cost"]
)
Cells = tuple[list[str], list[list[str]]]  # heading and rows
Row = Mapping[Any, Any]


@dataclass(frozen=True)
class Section:
    """An experiment as the report shows it, without its runs."""

    name: str
    slug: str  # in a path and in a link
    ks: tuple[int, ...]
    temperatures: tuple[float, ...]  # further ones
    findings: list[Finding]
    notes: list[str]
    tables: dict[str, pd.DataFrame]  # by file name
    matrices: list[tuple[str, Cells]]  # differences in each metric of the findings
    context: dict[str, Any]  # of the page's template

    @property
    def results(self) -> pd.DataFrame:
        return self.tables["table.csv"]


# Numbers as text.


class TimeUnit(NamedTuple):
    """A unit of time: its name, its symbol, and its length in seconds."""

    name: str
    symbol: str
    seconds: float


UNITS = (TimeUnit("seconds", "s", 1), TimeUnit("minutes", "min", 60), TimeUnit("hours", "h", 3600))


def fitting_unit(seconds: Iterable[float]) -> TimeUnit:
    """Return the greatest unit of which the longest duration is at least two."""
    most = max((abs(value) for value in seconds if math.isfinite(value)), default=0.0)
    return [UNITS[0], *(unit for unit in UNITS if most >= 2 * unit.seconds)][-1]


def duration(seconds: Any) -> str:
    """Return a duration with its unit, such as 0.12 s, 45 s, 3.2 min or 1.5 h; a dash for none."""
    if pd.isna(seconds):
        return NOTHING
    unit = fitting_unit([seconds])
    amount = seconds / unit.seconds
    return f"{amount:.2g} s" if amount < 1 else f"{amount:.1f} {unit.symbol}"


def number(value: Any, digits: int = 3) -> str:
    """Return a measured number with fixed digits; a dash if it was not measured."""
    return NOTHING if pd.isna(value) else f"{value:.{digits}f}"


def count(value: Any) -> str:
    """Return a whole number with separators, 512,000, or from ten digits on rounded: 3.21e12."""
    if pd.isna(value) or value == math.inf:
        return NOTHING
    return f"{value:,.0f}" if value < 1e10 else f"{value:.3g}".replace("e+", "e")


def ends(low: Any, high: Any, digits: int = 3) -> str:
    """Return the ends of an interval, with more digits where they would look the same.

    "" if it has no width: where all problems have one value, a mean of them has no spread to show.
    """
    if pd.isna(low) or pd.isna(high) or high - low < NO_WIDTH:
        return ""
    while number(low, digits) == number(high, digits):
        digits += 1
    return f"[{number(low, digits)}, {number(high, digits)}]"


def with_interval(row: Row, name: str, digits: int = 3) -> str:
    """Return a column's number with its interval."""
    shown = ends(row[f"{name}_low"], row[f"{name}_high"], digits)
    return f"{number(row[name], digits)} {shown}".strip()


# Tables as cells.


def result_cells(
    results: pd.DataFrame,
    ks: Sequence[int],
    temperature: float | None = None,
    but: Sequence[str] = (),
) -> Cells:
    """Return table.csv as cells, at a further temperature if given, without unmeasured rows.

    `but`: metrics that are left out.
    """
    every = reported_metrics(ks, temperature)
    metrics = [m for m in every if m.name not in but and results[m.name].notna().any()]
    rows = [
        [spoken(row["label"]), str(row["seeds"]), str(row["step"])]
        + [with_interval(row, metric.name) for metric in metrics]
        + [number(row.get("gain"), 2)]
        for row in results.to_dict("records")
        if not all(pd.isna(row[metric.name]) for metric in metrics)
    ]
    return ["", "seeds", "step", *(m.title for m in metrics), "pass@1 / base"], rows


def amount_cells(table: pd.DataFrame) -> Cells:
    """Return the budgets of table.csv, or costs.csv, as cells; without what nobody recorded."""
    table = table[table["step"] > 0] if "step" in table else table
    names = [n for n in HEADINGS if n in table and (table[n].fillna(0) > 0).any()]
    rows = [
        [row["label"], *((duration if n.endswith("_s") else count)(row[n]) for n in names)]
        for row in table.to_dict("records")
    ]
    return ["", *(HEADINGS[name] for name in names)], rows if names else []


def metric_cells(
    table: pd.DataFrame, metrics: Sequence[str] | None = None, extra: str = ""
) -> Cells:
    """Return a tidy table (label, metric, mean, low, high) as cells, a row per label.

    `extra`: a column of text or numbers behind each mean.
    """
    by_cell = {(row["label"], row["metric"]): row for row in table.to_dict("records")}
    every = dict.fromkeys(metric for _, metric in by_cell)
    shown = [metric for metric in (metrics or every) if metric in every]

    def cell(row: Row | None) -> str:
        if row is None:
            return NOTHING
        text = f"{number(row['mean'])} {ends(row.get('low'), row.get('high'), 2)}".strip()
        more = row.get(extra)
        return text if pd.isna(more) else f"{text} {more if isinstance(more, str) else f'{more:g}'}"

    labels = dict.fromkeys(label for label, metric in by_cell if metric in shown)
    rows = [[spoken(name), *(cell(by_cell.get((name, m))) for m in shown)] for name in labels]
    return ["", *(TITLES.get(metric, metric.replace("_", " ")) for metric in shown)], rows


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a pipe table, padded to be readable as text.

    The first column is left-aligned, the others right-aligned.
    """
    from tabulate import tabulate

    # each text in one line, with pipes escaped
    titles, *body = [
        [" ".join(text.split()).replace("|", "\\|") for text in row] for row in (heading, *rows)
    ]
    align = ["left", *["right"] * (len(heading) - 1)]
    return tabulate(body, titles, tablefmt="pipe", colalign=align, disable_numparse=True)


# Whole documents.


def evaluation_size(results: pd.DataFrame) -> str:
    """Return a sentence on the numbers of problems and samples behind the rows."""
    sizes = results[["problems", "samples"]].drop_duplicates()
    if len(sizes) > 1:
        return "Problems or samples per problem differ between rows."
    return f"{sizes['problems'].iloc[0]} problems, {sizes['samples'].iloc[0]} samples each."


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Return findings as a Markdown list, with a metric's statements below its title."""
    lines = []
    for one in findings:
        lines += [f"- **{one.title}**"] if one.title else []
        lines += [f"{'  ' if one.title else ''}- {statement}" for statement in one.statements]
    return lines


def markdown_section(section: Section) -> str:
    """Return an experiment's findings, results, turns, budgets and caveats in Markdown."""
    results, blocks = section.results, ["\n".join(finding_lines(section.findings))]
    if len(results):
        blocks.append(f"{evaluation_size(results)} Means over seeds, 95 % intervals in brackets.")
        blocks.append(markdown_table(*result_cells(results, section.ks)))
        for temperature in section.temperatures:
            cells = result_cells(results, section.ks, temperature)
            blocks += [f"At temperature {temperature:g}:", markdown_table(*cells)]
        if len(turns := section.tables["turns.csv"]):
            blocks += ["Turn by turn:", markdown_table(*metric_cells(turns))]
        heading, rows = amount_cells(results)
        if rows:
            intro = "Spent by the end of training, mean over seeds:"
            blocks += [intro, markdown_table(heading, rows)]
    if section.notes:
        blocks += ["Caveats:", "\n".join(f"- {sentence}" for sentence in section.notes)]
    return readable("\n\n".join(filter(None, blocks)))


def markdown_document(sections: Sequence[Section], skipped: Sequence[str]) -> str:
    """Return table.md: what was skipped, and each experiment."""
    heads = [f"## {section.name}\n\n" if len(sections) > 1 else "" for section in sections]
    parts = [head + markdown_section(s) for head, s in zip(heads, sections, strict=True)]
    return "\n\n".join([*map(readable, skipped), *parts]) + "\n"


def latex_document(sections: Sequence[Section]) -> str:
    """Return results and differences of each experiment; to be \\input, needs booktabs."""
    blocks = []
    for section in (section for section in sections if len(section.results)):
        at = [("", result_cells(section.results, section.ks)), *section.matrices]
        for t in section.temperatures:
            at.append((f"At temperature {t:g}", result_cells(section.results, section.ks, t)))
        for title, (heading, rows) in at:
            plain = [[readable(cell).replace("−", "-") for cell in row] for row in (heading, *rows)]
            style = pd.DataFrame(plain[1:], columns=plain[0]).style.hide(axis="index")
            style = style.format(escape="latex").format_index(escape="latex", axis="columns")
            caption = re.sub(r"([%_&#$])", r"\\\1", readable(f"{section.name} {title}".strip()))
            blocks.append(style.to_latex(caption=caption, hrules=True))
    return "\n".join(blocks)


def before_after_table(run_folder: str | Path) -> Table:
    """Return a run's metrics at its first and last evaluation, with intervals over problems.

    Raises RunError if the folder is damaged or no evaluation was finished.
    """
    run = load_run(run_folder)
    if not run.evaluated_steps:
        raise RunError(f"{run.path}: no evaluation was finished, so there is nothing to compare")
    steps = sorted({run.evaluated_steps[0], run.evaluated_steps[-1]})
    ks, notes = common_ks([run])
    last = run.evaluation(steps[-1])
    table = Table(box=box.SIMPLE_HEAD, caption=Text("\n".join(notes)))
    size = f"{last['problem'].nunique()} problems, {samples_per_problem(last)} samples each"
    table.add_column(f"{size}\n95 % intervals over problems")
    for step in steps:
        table.add_column(f"step {step}", justify="right")
    further = [run.further_evaluations(step) for step in steps]
    scored = scores_at_temperatures([run.evaluation(step) for step in steps], further, ks)
    grids = [stack_seeds((run.seed,), [scores]) for scores in scored]
    temperatures = sorted({temperature for samples in further for temperature in samples})
    for metric in (m for t in (None, *temperatures) for m in reported_metrics(ks, t)):
        name = metric.name
        intervals = [interval_columns(g.get(name), name) for g in grids]
        if not all(pd.isna(one[name]) for one in intervals):
            table.add_row(metric.title, *(with_interval(one, name) for one in intervals))
    return table
