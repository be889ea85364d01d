"""Write a report: its tables in four formats, and one self-contained page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from analysis import rendering
from analysis.experiment import Experiment
from analysis.figures import (
    MOST_DRAWN,
    fit_figure,
    group_styles,
    headline_figure,
    learning_figure,
    pass_at_k_figure,
    training_figure,
    turn_figure,
)
from analysis.findings import difference_matrix, findings, headline_metrics
from analysis.metrics import TITLES, reported_metrics
from analysis.rendering import Section
from analysis.samples import explorer_data, matrix_data, pack
from analysis.settings import command, differing_settings, shared_facts
from analysis.tables import CHECKS, experiment_tables
from analysis.turns import TURN_TABLES
from envs.readable import readable

WEB = Path(__file__).parent / "web"
MOST_IN_MATRIX = 30  # groups up to which differences are shown as a matrix
INTERVALS_IN_MATRIX = 8  # groups up to which a matrix has room for intervals


def build_section(name: str, slug: str, experiment: Experiment, page_share: float) -> Section:
    """Lay out an experiment; `page_share` is the section's share of the page's programs."""
    metrics, trained = headline_metrics(experiment.ks), len(experiment.trained)
    matrices = [
        (TITLES.get(m, m), difference_matrix(experiment, m, trained <= INTERVALS_IN_MATRIX))
        for m in metrics
        if 1 < trained <= MOST_IN_MATRIX
    ]
    section = Section(
        name=name,
        slug=slug,
        ks=experiment.ks,
        temperatures=experiment.temperatures,
        findings=findings(experiment),
        notes=experiment.notes,
        tables=experiment_tables(experiment),
        matrices=[(title, cells) for title, cells in matrices if len(cells[1]) > 1],
        context={},
    )
    section.context.update(_context(experiment, section))
    if experiment.models:
        packed, omitted = {"matrix": matrix_data(experiment)}, ""
        if not experiment.packed:
            packed["explorer"], omitted = explorer_data(experiment, page_share)
        section.context.update(packed=pack(packed), omitted=omitted)
    return section


def _context(experiment: Experiment, section: Section) -> dict[str, Any]:
    """Return what the template shows beside the section's tables: settings, fits and figures."""
    tables, results, ks = section.tables, section.results, section.ks
    settings = differing_settings(experiment.groups).reset_index()
    context: dict[str, Any] = {
        "packed_study": experiment.packed,
        "groups": len(experiment.groups),
        "facts": shared_facts(experiment.groups),
        "settings": (list(settings), settings.to_numpy().tolist()),
        "commands": [(g.label, command(g.runs[0]), g.runs[0].info) for g in experiment.groups],
        "figures": [],
    }
    if not len(results):
        return context
    styles, window = group_styles(results, ks), experiment.window
    training, curve = tables["training.csv"], tables["curve.csv"]
    metrics = [str(name) for name in curve if f"{name}_low" in curve]
    figures = (
        headline_figure(results, ks, styles),
        learning_figure(training, curve, metrics, styles, window),
        training_figure(training, styles, window),
        pass_at_k_figure(tables["pass_at_k.csv"], styles),
        fit_figure(experiment.fits, styles),
        turn_figure(tables["turn_curve.csv"], styles),
    )
    trained = int((results["step"] > 0).sum())
    return context | {
        "figures": [figure for figure in figures if figure],
        "styles": styles,
        "drawn": f"{MOST_DRAWN} of {trained} groups" if trained > MOST_DRAWN else "",
    }


# Files.


def write_report(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; `skipped` are notes on runs that are in no section.

    Raises OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in sections[0].tables:
        _write_table(sections, name, out)
    (out / "table.md").write_text(rendering.markdown_document(sections, skipped), encoding="utf-8")
    (out / "table.tex").write_text(rendering.latex_document(sections), encoding="utf-8")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    context = {"made": made, "sections": sections, "skipped": skipped}
    (out / "report.html").write_text(render_page(context), encoding="utf-8")


def _write_table(sections: Sequence[Section], name: str, out: Path) -> None:
    """Write one table of all sections, in CSV and Parquet; those of turns only if there are any."""
    tables = [section.tables[name].assign(experiment=section.name) for section in sections]
    # A table without rows has no types, and would turn the others' counts into floats.
    filled = [table for table in tables if len(table)]
    parquet = (out / name).with_suffix(".parquet")
    if name in TURN_TABLES and not filled:
        for file in (out / name, parquet):  # of an earlier report
            file.unlink(missing_ok=True)
        return
    table = pd.concat(filled or tables[:1])
    table.insert(0, "experiment", table.pop("experiment"))
    table.to_csv(out / name, index=False)
    # Parquet has no type for columns that mix texts and numbers.
    mixed = {str(n): table[n].astype("string") for n in table if table[n].dtype == object}
    table.assign(**mixed).to_parquet(parquet, index=False)


# The page.


def render_page(context: Mapping[str, Any]) -> str:
    """Fill the template, with style and script inside it.

    All text from run folders is escaped and made readable. The page's content security policy
    allows no request and no script except its own.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(WEB),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: readable(value) if type(value) is str else value,
    )
    script = (WEB / "page.js").read_text(encoding="utf-8")
    script += (WEB / "explorer.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.filters["breakable"] = _breakable
    environment.globals |= {
        "show": rendering,
        "headline_metrics": headline_metrics,
        "meanings": reported_metrics(sorted({k for s in context["sections"] for k in s.ks})),
        "checks": CHECKS,
        "script": script,
        "script_hash": f"sha256-{digest}",
        "css": (WEB / "page.css").read_text(encoding="utf-8"),
    }
    return environment.get_template("page.html.j2").render(context)


def _breakable(text: str) -> Markup:
    """Allow a line break after each part of a name, such as a_b/c, for narrow columns."""
    return Markup(re.sub(r"([_/])(?=.)", r"\1<wbr>", str(escape(readable(text)))))
