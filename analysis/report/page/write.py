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

from analysis.metrics import health
from analysis.metrics.definitions import reported_metrics
from analysis.report import latex, render
from analysis.report.experiment import Section
from analysis.report.page.figures import figure_files
from analysis.report.page.points import panel_key
from analysis.report.page.svg import swatch
from analysis.report.units import duration
from analysis.stats import curves
from analysis.turns.tables import TURN_TABLES
from envs.readable import readable

FOLDER = Path(__file__).parent
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
