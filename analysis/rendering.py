"""Tables for readers: the tables of `analysis.stats` as cells, Markdown and terminal tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.table import Table

from analysis.budgets import AREA, BUDGET_TITLES, PHASE_TITLES
from analysis.experiment import Experiment, Headline, Section
from analysis.findings import difference_matrix, headline_metrics
from analysis.markdown import table as markdown_table
from analysis.metrics import (
    DISTINCT,
    TITLES,
    Metric,
    at_temperature,
    further_metrics,
    reported_metrics,
)
from analysis.packed import mean_count
from analysis.runs import Contrast, RunError, load_run
from envs.readable import readable

NOTHING = "–"
NO_WIDTH = 1e-9  # an interval narrower than this has no width beyond rounding
MATRIX_LABELS = 30  # groups up to which differences are shown as a matrix
INTERVALS_IN_MATRIX = 8  # groups up to which a matrix has room for intervals
AXIS_TITLES = {
    "generated_tokens": "generated and reference tokens",
    "judged_programs": "judged programs",
    "flops": "FLOPs",
    "wall_time": "wall time without evaluations",
}
BUDGET_HEADINGS = BUDGET_TITLES | {"wall_s": "wall time"}
MEMORY_HEADINGS = {"peak_mb": "peak memory, MB", "gpu_peak_mb": "peak GPU memory, MB"}
TERMINAL_DIVERSITY = (DISTINCT, "edit_distance")
Cells = tuple[list[str], list[list[str]]]  # heading and rows
Row = Mapping[str, Any]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings by column name."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


# Numbers as text.


def number(value: Any, digits: int = 3) -> str:
    """Return a measured number with fixed digits; a dash if it was not measured."""
    return NOTHING if missing(value) else f"{value:.{digits}f}"


def count(value: Any) -> str:
    """Return a whole number with separators, 512,000, or from ten digits on rounded: 3.21e12."""
    if missing(value):
        return NOTHING
    return f"{value:,.0f}" if value < 1e10 else f"{value:.3g}".replace("e+", "e")


def plural(how_many: int | str, noun: str) -> str:
    """Return "1 run" or "2 runs"."""
    return f"{how_many} {noun}" if str(how_many) == "1" else f"{how_many} {noun}s"


def missing(value: Any) -> bool:
    """Return whether a value was not measured: None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def interval(row: Row, name: str, digits: int = 3, form: str = "[{}, {}]") -> str:
    """Return the ends of the interval of a column, "" if there is none or it has no width."""
    return ends(row[f"{name}_low"], row[f"{name}_high"], digits, form)


def ends(low: Any, high: Any, digits: int = 3, form: str = "[{}, {}]") -> str:
    """Return the ends of an interval, with more digits where they would look the same.

    "" if it has no width: where all problems have one value, a mean of them has no spread to show.
    """
    if missing(low) or missing(high) or high - low < NO_WIDTH:
        return ""
    digits = _digits_apart(low, high, digits)
    return form.format(number(low, digits), number(high, digits))


def _digits_apart(low: float, high: float, digits: int) -> int:
    """Return how many digits two different numbers need to look different, at least `digits`."""
    while number(low, digits) == number(high, digits):
        digits += 1
    return digits


def with_interval(row: Row, name: str) -> str:
    """Return a column's number with its interval, or the number of problems if that has none.

    The number has as many digits as the ends, so that it does not look to be outside of them.
    """
    shown = interval(row, name)
    digits = _digits_apart(row[f"{name}_low"], row[f"{name}_high"], 3) if shown else 3
    return f"{number(row[name], digits)} {shown or no_width(row, name)}".strip()


def no_width(row: Row, name: str) -> str:
    """Return [200 problems] in place of an interval without width, "" where none was measured."""
    problems = row.get(f"{name}_problems")
    if missing(row[f"{name}_low"]) or problems is None or missing(problems):
        return ""
    return f"[{plural(mean_count(problems), 'problem')}]"


# Tables as cells.


def measured_metrics(results: pd.DataFrame, ks: Sequence[int]) -> list[Metric]:
    """Return the metrics with a value in at least one row."""
    return [metric for metric in reported_metrics(ks) if results[metric.name].notna().any()]


def further_cells(results: pd.DataFrame, ks: Sequence[int], temperature: float) -> Cells:
    """Return the results at a further temperature as cells, without models that have none."""
    metrics = [m for m in further_metrics(ks, [temperature]) if results[m.name].notna().any()]
    titles = [metric.title.removesuffix(at_temperature("", temperature)) for metric in metrics]
    rows = [
        [
            row["label"],
            str(row["seeds"]),
            str(row["step"]),
            *(with_interval(row, metric.name) for metric in metrics),
        ]
        for row in records(results)
        if not all(missing(row[metric.name]) for metric in metrics)
    ]
    return ["", "seeds", "step", *titles], rows


def result_cells(results: pd.DataFrame, ks: Sequence[int]) -> Cells:
    """Return the result table as cells."""
    metrics = measured_metrics(results, ks)
    heading = ["", "seeds", "step", *(metric.title for metric in metrics), "pass@1 / base"]
    rows = [
        [
            row["label"],
            str(row["seeds"]),
            str(row["step"]),
            *(with_interval(row, metric.name) for metric in metrics),
            number(row.get("gain"), 2),
        ]
        for row in records(results)
    ]
    return heading, rows


def budget_cells(results: pd.DataFrame) -> Cells:
    """Return each group's budgets at the end of training, mean over seeds, as cells."""
    trained = results[results["step"] > 0]
    columns = {
        name: heading
        for name, heading in BUDGET_HEADINGS.items()
        if name in trained and trained[name].notna().any()
    }
    rows = [
        [
            row["label"],
            *(duration(row[name]) if name == "wall_s" else count(row[name]) for name in columns),
        ]
        for row in records(trained)
    ]
    return ["", *columns.values()], rows


def difficulty_cells(table: pd.DataFrame) -> Cells:
    """Return difficulty.csv as cells, with a column per difficulty and k."""
    if not len(table):
        return [], []
    columns = [(d, m) for d in table["difficulty"].cat.categories for m in table["metric"].unique()]
    means = {(r["label"], r["difficulty"], r["metric"]): r["mean"] for r in records(table)}
    sizes = table.groupby("difficulty", observed=True)["problems"].max()
    heading = [
        "",
        *(f"{difficulty} ({sizes[difficulty]}) {metric}" for difficulty, metric in columns),
    ]
    rows = [
        [label, *(number(means.get((label, *column))) for column in columns)]
        for label in dict.fromkeys(table["label"])
    ]
    return heading, rows


def difference_matrices(experiment: Experiment) -> list[tuple[str, Cells]]:
    """Return title and cells of the differences in each headline metric.

    A metric needs two groups that have it; there are none for more groups than MATRIX_LABELS.
    """
    if len(experiment.trained) > MATRIX_LABELS:
        return []
    intervals = len(experiment.trained) <= INTERVALS_IN_MATRIX
    matrices = [
        (metric, difference_matrix(experiment, metric, intervals))
        for metric in headline_metrics(experiment)
    ]
    return [(TITLES.get(metric, metric), cells) for metric, cells in matrices if len(cells[1]) > 1]


def letter_cells(table: pd.DataFrame, metrics: Sequence[str]) -> Cells:
    """Return letters.csv for these metrics as cells, the best in the first metric on top."""
    shown = {(row["label"], row["metric"]): row for row in records(table)}
    metrics = [metric for metric in metrics if metric in set(table.get("metric", ()))]
    labels = [label for label, metric in shown if metrics and metric == metrics[0]]

    def cell(row: Row | None) -> str:
        return NOTHING if row is None else f"{number(row['mean'])} {row['letters']}"

    rows = [[label, *(cell(shown.get((label, metric))) for metric in metrics)] for label in labels]
    return ["", *(TITLES.get(metric, metric) for metric in metrics)], rows


def equal_budget_cells(table: pd.DataFrame, metrics: Sequence[str]) -> list[tuple[str, Cells]]:
    """Return title and cells of equal_budget.csv for each axis: these metrics and AREA."""
    titled_cells = []
    axes = table.groupby(["axis", "budget"], sort=False) if len(table) else ()
    for (axis, budget), part in axes:
        names = [name for name in (*metrics, AREA) if name in set(part["metric"])]
        rows = []
        for label in part["label"].unique():
            by_metric = {row["metric"]: row for row in records(part[part["label"] == label])}
            rows.append([label, *(_with_tier(by_metric.get(name)) for name in names)])
        spent = duration(budget) if axis == "wall_time" else count(budget)
        heading = ["", *(TITLES.get(name, name) for name in names)]
        titled_cells.append((f"{AXIS_TITLES[str(axis)]}: {spent}", (heading, rows)))
    return titled_cells


def _with_tier(row: Row | None) -> str:
    if row is None:
        return NOTHING
    text = f"{number(row['mean'])} {ends(row['low'], row['high'], 2)}".strip()
    return text if missing(row["tier"]) else f"{text} tier {row['tier']:.0f}"


def cost_cells(table: pd.DataFrame) -> Cells:
    """Return costs.csv as cells: wall time by phase and per step, peak memory."""
    if not len(table):
        return [], []
    titles = {f"{phase}_s": title for phase, title in PHASE_TITLES.items()}
    titles |= {"trained_s": "training in total", "evaluate_s": "evaluating (not charged)"}
    times = [name for name in titles if table[name].notna().any() and (table[name] > 0).any()]
    memory = [name for name in MEMORY_HEADINGS if table[name].notna().any()]
    heading = ["", *(titles[name] for name in times), "per step", "judge CPU"]
    rows = [
        [
            row["label"],
            *(duration(row[name]) for name in (*times, "step_s", "judge_cpu_s")),
            *(count(row[name]) for name in memory),
        ]
        for row in records(table)
    ]
    return [*heading, *(MEMORY_HEADINGS[name] for name in memory)], rows


def verdict_cells(table: pd.DataFrame) -> Cells:
    """Return `analysis.stats.tables.verdict_table` as cells, in per cent."""
    heading = ["", *(name.lower().replace("_", " ") for name in table.columns)]
    rows = [
        [str(label), *(f"{100 * share:.1f}" for share in row)] for label, row in table.iterrows()
    ]
    return heading, rows


# Sentences and whole documents.


def change_from_base(results: pd.DataFrame, ks: Sequence[int]) -> str:
    """Return the range of pass@k, for the least k, before and after training."""
    name, ranges = f"pass@{ks[0]}", []
    for rows in (results[results["step"] == 0], results[results["step"] > 0]):
        low, high = number(rows[name].min()), number(rows[name].max())
        ranges.append(low if low == high else f"{low} to {high}")
    return f"{name} {' → '.join(ranges)}"


def evaluation_size(results: pd.DataFrame) -> str:
    """Return a sentence on the numbers of problems and samples behind the rows."""
    sizes = results[["problems", "samples"]].drop_duplicates()
    if len(sizes) > 1:
        return "Problems or samples per problem differ between rows."
    return f"{sizes['problems'].iloc[0]} problems, {sizes['samples'].iloc[0]} samples each."


def markdown_document(sections: Sequence[Section], skipped: Sequence[str]) -> str:
    """Return table.md: headlines, results, budgets and caveats of each experiment."""
    blocks = list(skipped)
    for section in sections:
        if len(sections) > 1:
            blocks.append(f"## {section.name}")
        if section.headlines:
            items = [line for headline in section.headlines for line in _list_items(headline)]
            blocks.append("\n".join(items))
        if len(section.results):
            size = evaluation_size(section.results)
            blocks += [
                f"{size} Means over seeds, 95 % intervals in brackets.",
                markdown_table(*result_cells(section.results, section.ks)),
            ]
            for temperature in section.temperatures:
                cells = further_cells(section.results, section.ks, temperature)
                blocks += [f"At temperature {temperature:g}:", markdown_table(*cells)]
            for one in section.context.get("turns", ()):
                blocks += [f"Turn by turn: {one.caption}", markdown_table(*one.cells)]
            heading, rows = budget_cells(section.results)
            if rows:
                intro = "Spent by the end of training, mean over seeds:"
                blocks += [intro, markdown_table(heading, rows)]
        if section.notes:
            notes = "\n".join(f"- {sentence}" for sentence in section.notes)
            blocks += ["Caveats:", notes]
    return readable("\n\n".join(blocks)) + "\n"


def _list_items(headline: Headline) -> list[str]:
    """Return a headline as a Markdown list, with a metric's statements below its title."""
    if not headline.title:
        return [f"- {statement}" for statement in headline.statements]
    return [f"- **{headline.title}**", *(f"  - {s}" for s in headline.statements)]


def terminal_table(results: pd.DataFrame, ks: Sequence[int]) -> Table:
    """Return the main metrics as a rich table, with short intervals below the means."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    metrics = [
        metric
        for metric in measured_metrics(results, ks)
        if metric.name.startswith("pass@") or metric.name in TERMINAL_DIVERSITY
    ]
    table = Table(box=box.SIMPLE_HEAD, show_lines=False, padding=(0, 1))
    # A run that stopped early, or a longer one, must be recognisable as such.
    with_steps = results.loc[results["step"] > 0, "step"].nunique() > 1
    table.add_column("", overflow="fold")  # labels may be broken into lines, numbers not
    for heading in (
        *(["step"] if with_steps else []),
        "seeds",
        *(metric.title for metric in metrics),
        "pass@1\n/ base",
    ):
        title = heading.replace(" of ", "\nof ").replace("edit ", "edit\n")
        table.add_column(title, justify="right", no_wrap=True, overflow="fold")
    for row in records(results):
        cells = [
            f"{number(row[m.name])}\n[dim]{interval(row, m.name, 2, '{}–{}')}[/dim]"
            for m in metrics
        ]
        counts = [str(row["step"])] * with_steps + [str(row["seeds"])]
        table.add_row(Text(row["label"]), *counts, *cells, number(row.get("gain"), 2))
    return table


class TimeUnit(NamedTuple):
    """A unit of time: its name, its symbol, and its length in seconds."""

    name: str
    symbol: str
    seconds: float


UNITS = (TimeUnit("seconds", "s", 1), TimeUnit("minutes", "min", 60), TimeUnit("hours", "h", 3600))
CHANGE = 2  # of a unit from which it is used, so that 119 s is not 2.0 min


def fitting_unit(seconds: Iterable[float]) -> TimeUnit:
    """Return the unit for the greatest of these durations; seconds if there is none."""
    most = max((abs(value) for value in seconds if math.isfinite(value)), default=0.0)
    return [UNITS[0], *(unit for unit in UNITS if most >= CHANGE * unit.seconds)][-1]


def duration(seconds: Any) -> str:
    """Return a duration with its unit, such as 0.12 s, 45 s, 3.2 min or 1.5 h; a dash for none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    unit = fitting_unit([seconds])
    amount = seconds / unit.seconds
    if unit is not UNITS[0] or 1 <= amount < 10:
        return f"{amount:.1f} {unit.symbol}"
    return f"{amount:.0f} s" if amount >= 10 or amount == 0 else f"{amount:.2g} s"


# pandas escapes the ASCII characters only, and not those of captions.
ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "_": r"\_",
        "%": r"\%",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "−": "$-$",
        "–": "--",
        "→": r"$\to$",
        "…": r"\dots{}",
    }
)


def escape(text: str) -> str:
    """Return the text escaped for LaTeX."""
    return readable(text).translate(ESCAPES)


def latex_table(heading: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Return a floating table, its first column left-aligned, the others right-aligned."""
    cells = pd.DataFrame(
        [[escape(cell) for cell in row] for row in rows],
        columns=[escape(cell) for cell in heading],
    )
    table = cells.style.hide(axis="index").to_latex(
        caption=escape(caption),
        column_format="l" + "r" * (len(heading) - 1),
        hrules=True,
        position_float="centering",
    )
    return table.replace(r"\centering", r"\centering\small", 1).rstrip()


def latex_document(sections: Sequence[Section]) -> str:
    """Return results and differences of each experiment; to be \\input, needs booktabs."""
    blocks = ["% \\usepackage{booktabs}"]
    for section in sections:
        if not len(section.results):
            continue
        caption = (
            f"{section.name}. {evaluation_size(section.results)} Means over seeds, 95 % intervals."
        )
        heading, rows = result_cells(section.results, section.ks)
        blocks.append(latex_table(heading, rows, caption))
        for temperature in section.temperatures:
            cells = further_cells(section.results, section.ks, temperature)
            blocks.append(latex_table(*cells, f"{caption} At temperature {temperature:g}."))
        for metric, (heading, rows) in section.context["matrices"]:
            caption = (
                f"{section.name}, {metric}: row minus column with 95 % intervals; "
                "* separated after Holm's correction."
            )
            blocks.append(latex_table(heading, rows, caption))
    return "\n\n".join(blocks) + "\n"


FEW = 6  # pairs, up to which all are shown at once


class PowerTables(NamedTuple):
    """`first`: a row per pair that matters, without rows if there are few; `every`: all pairs."""

    pairs: int
    first: Cells
    every: Cells


def power_tables(
    table: pd.DataFrame, metrics: Sequence[str], contrasts: Iterable[Contrast]
) -> PowerTables:
    """Return power.csv for these metrics as cells.

    First are the pairs that were named ahead, and for each metric the pairs with the smallest and
    the largest detectable difference.
    """
    if not len(table):
        return PowerTables(0, ([], []), ([], []))
    table = table[table["metric"].isin(metrics)]
    pairs = len(table[["a", "b"]].drop_duplicates())
    first = _first_cells(table, contrasts) if pairs > FEW else ([], [])
    return PowerTables(pairs, first, _all_cells(table))


def _first_cells(table: pd.DataFrame, contrasts: Iterable[Contrast]) -> Cells:
    """Return the detectable difference in each metric of the pairs that matter, and why they do."""
    metrics = list(table["metric"].unique())
    detected = {
        (frozenset((row["a"], row["b"])), row["metric"]): row["smallest_difference"]
        for row in records(table)
    }
    known = {pair for pair, _ in detected}
    reasons: dict[tuple[str, str], list[str]] = {}
    order: dict[frozenset[str], tuple[str, str]] = {}  # a pair → as it was first said
    for one in contrasts:
        if (pair := frozenset((one.a, one.b))) in known and pair not in order:
            order[pair] = (one.a, one.b)
            reasons[order[pair]] = ["named ahead"]
    for metric in metrics:
        part = table[table["metric"] == metric]
        part = part[part["smallest_difference"].map(math.isfinite)].reset_index(drop=True)
        if not len(part):
            continue
        sizes = part["smallest_difference"]
        for place, word in ((sizes.idxmin(), "smallest"), (sizes.idxmax(), "largest")):
            a, b = str(part.loc[place, "a"]), str(part.loc[place, "b"])
            said = order.setdefault(frozenset((a, b)), (a, b))
            reasons.setdefault(said, []).append(f"{word} in {TITLES.get(metric, metric)}")
    rows = [
        [
            f"{said[0]} − {said[1]}",
            *(number(detected.get((pair, metric))) for metric in metrics),
            "; ".join(reasons[said]),
        ]
        for pair, said in order.items()
    ]
    return ["", *(TITLES.get(metric, metric) for metric in metrics), "why it is here"], rows


def _all_cells(table: pd.DataFrame) -> Cells:
    sources = ("seeds", "problems", "interaction", "sampling")
    resources = ("seeds", "samples", "problems")
    target = f"{table['wish'].iloc[0]:g}"
    heading = [
        "",
        "metric",
        "detected in 80 %",
        *(f"{source}, % of variance" for source in sources),
    ]
    heading += [f"{resource} to detect {target}" for resource in resources]
    rows = [
        [
            f"{row['a']} − {row['b']}",
            TITLES.get(row["metric"], row["metric"]),
            number(row["smallest_difference"]),
            *(number(100 * row[f"of_{source}"], 0) for source in sources),
            *(_needed(row[f"{resource}_needed"]) for resource in resources),
        ]
        for row in records(table)
    ]
    return heading, rows


def _needed(needed: float) -> str:
    return "none suffices" if needed == math.inf else count(needed)


STAGES = ("before", "after")


@dataclass(frozen=True)
class BeforeAfter:
    """The metrics at a run's first and last evaluation.

    `table` has the columns metric (its title), before, before_low, before_high, and the same with
    after if there was more than one evaluation; intervals are 95 %, over problems. `steps` are
    those of the evaluations. `problems` and `samples` per problem are the last one's. `notes` say
    what could not be shown.
    """

    table: pd.DataFrame
    steps: list[int]
    problems: int
    samples: int
    notes: list[str]


def before_after(run_folder: str | Path) -> BeforeAfter:
    """Compare a run's first and last evaluation.

    Raises RunError if the folder is damaged or no evaluation was finished.
    """
    import pandas as pd

    from analysis.intervals import grid_interval, interval_columns
    from analysis.metrics import further_metrics, reported_metrics
    from analysis.models import common_ks, samples_per_problem
    from analysis.scores import scores_at_temperatures, stack_seeds

    run = load_run(run_folder)
    if not run.evaluated_steps:
        raise RunError(f"{run.path}: no evaluation was finished, so there is nothing to compare")
    steps = sorted({run.evaluated_steps[0], run.evaluated_steps[-1]})
    ks, notes = common_ks([run])
    further = [run.further_evaluations(step) for step in steps]
    scored = scores_at_temperatures([run.evaluation(step) for step in steps], further, ks)
    by_stage = [stack_seeds((run.seed,), [scores]) for scores in scored]
    temperatures = sorted({temperature for samples in further for temperature in samples})
    rows = []
    for metric in (*reported_metrics(ks), *further_metrics(ks, temperatures)):
        row: dict[str, object] = {"metric": metric.title}
        for stage, grids in zip(STAGES, by_stage, strict=False):
            row |= interval_columns(grid_interval(grids.get(metric.name), metric.name), stage)
        rows.append(row)
    last = run.evaluation(steps[-1])
    return BeforeAfter(
        table=pd.DataFrame(rows),
        steps=steps,
        problems=int(last["problem"].nunique()),
        samples=samples_per_problem(last),
        notes=notes,
    )


def before_after_table(run_folder: str | Path) -> Table:
    """Return `before_after` as a rich table, without the metrics that have no value."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    comparison = before_after(run_folder)
    stages = STAGES[: len(comparison.steps)]
    table = Table(box=box.SIMPLE_HEAD, caption=Text("\n".join(comparison.notes)))
    size = f"{comparison.problems} problems, {comparison.samples} samples each"
    table.add_column(f"{size}\n95 % intervals over problems")
    for stage, step in zip(stages, comparison.steps, strict=True):
        table.add_column(f"{stage} training\n(step {step})", justify="right")
    for row in records(comparison.table):
        if not all(missing(row[stage]) for stage in stages):
            table.add_row(row["metric"], *(with_interval(row, stage) for stage in stages))
    return table
