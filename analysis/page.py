"""Write a report: its tables in four formats, its figures, and one self-contained page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from analysis import budgets as curves
from analysis import figures, samples
from analysis import rendering as latex
from analysis import rendering as render
from analysis import tables as health
from analysis.experiment import Experiment, Section
from analysis.figures import figure_files, swatch, training_figure
from analysis.findings import headline_metrics
from analysis.metrics import DISTINCT, reported_metrics
from analysis.page_parts import (
    figure_points,
    fit_figure,
    fit_tables,
    panel_key,
    turn_figure,
    turn_page_tables,
)
from analysis.rendering import duration, power_tables
from analysis.run_change import single_run
from analysis.settings import (
    commands,
    descriptions,
    differing_settings,
    hyperparameters,
    shared_settings,
    shared_values,
)
from analysis.turns import TURN_TABLES, turn_plan
from envs.readable import readable

FOLDER = Path(__file__).parent / "web"
STYLES = ("figures", "style", "reading")  # later ones have exceptions for narrow screens
SCRIPTS = (
    *("text", "diff", "tables", "choices", "names", "address", "contents", "values", "matrix"),
    *("conversations", "explorer", "start"),
)


def write_report(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; `skipped` are notes on runs that are in no section.

    Raises OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    conversations = any(len(section.tables["turns.csv"]) for section in sections)
    for name in sections[0].tables:
        if name not in TURN_TABLES or conversations:
            _write_table(sections, name, out)
        else:
            _remove_table(name, out)  # of an earlier report
    _remove_figures(out / "figures")
    for section in sections:
        _write_figures(section, out / "figures" / section.slug)
    (out / "table.md").write_text(render.markdown_document(sections, skipped), encoding="utf-8")
    (out / "table.tex").write_text(latex.latex_document(sections), encoding="utf-8")
    context = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "sections": [section.context for section in sections],
        "skipped": skipped,
        "meanings": reported_metrics(sorted({k for section in sections for k in section.ks})),
        "kl_steps": curves.KL_STEPS,
    }
    (out / "report.html").write_text(render_page(context), encoding="utf-8")


def _remove_figures(figures: Path) -> None:
    """Remove an earlier report's figures, which may be of other experiments, but no other files."""
    for file in figures.glob("*/*"):
        if file.suffix in (".svg", ".png"):
            file.unlink()
    for folder in figures.glob("*"):
        with suppress(OSError):  # it has other files
            folder.rmdir()


def _write_figures(section: Section, folder: Path) -> None:
    """Write the page's figures of a section, a file for each choice of an axis."""
    for figure in section.context["figures"]:
        folder.mkdir(parents=True, exist_ok=True)
        styles, drawn_of = section.context["styles"], section.context["drawn_of"]
        for name, text in figure_files(figure, styles, drawn_of).items():
            (folder / f"{name}.svg").write_text(text, encoding="utf-8")


def _write_table(sections: Sequence[Section], name: str, out: Path) -> None:
    """Write one table of all sections, in CSV and Parquet."""
    tables = [section.tables[name].assign(experiment=section.name) for section in sections]
    # A table without rows has no types, and would turn the others' counts into floats.
    table = pd.concat([table for table in tables if len(table)] or tables[:1])
    table.insert(0, "experiment", table.pop("experiment"))
    table.to_csv(out / name, index=False)
    _mixed_as_text(table).to_parquet((out / name).with_suffix(".parquet"), index=False)


def _remove_table(name: str, out: Path) -> None:
    for file in (out / name, (out / name).with_suffix(".parquet")):
        file.unlink(missing_ok=True)


def _mixed_as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Convert columns that mix texts and numbers to text, because Parquet has no type for them."""
    mixed = {
        str(name): table[name].astype("string") for name in table if table[name].dtype == object
    }
    return table.assign(**mixed)


def render_page(context: Mapping[str, Any]) -> str:
    """Fill the template, with style and script inside it.

    All text from run folders is escaped and made readable. The page's content security policy
    allows no request and no script except its own.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _displayed(value) if type(value) is str else value,
    )
    scripts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    script = '"use strict";\n' + "\n".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.filters["breakable"] = _breakable
    environment.globals |= {
        "number": render.number,
        "count": render.count,
        "duration": duration,
        "interval": render.interval,
        "missing": render.missing,
        "plural": render.plural,
        "most_in_matrix": render.MATRIX_LABELS,
        "swatch": swatch,
        "panel_key": panel_key,
        "checks": health.CHECKS,
        "script": script,
        "script_hash": f"sha256-{digest}",
        "css": "".join((FOLDER / f"{name}.css").read_text("utf-8") for name in STYLES),
    }
    return environment.get_template("page.html.j2").render(context)


def _template(name: str) -> str:
    """Return a template's text, without a line break between a number and its per cent sign."""
    return (FOLDER / name).read_text(encoding="utf-8").replace("95 %", "95&nbsp;%")


def _displayed(text: str) -> str:
    """Return readable text, without a line break between a number and its per cent sign."""
    return readable(text).replace("95 %", "95\u00a0%")


def _breakable(text: str) -> Markup:
    """Allow a line break after each part of a name, such as a_b/c, for narrow columns."""
    return Markup(re.sub(r"([_/])(?=.)", r"\1<wbr>", str(escape(_displayed(text)))))


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
