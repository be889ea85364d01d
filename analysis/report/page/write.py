"""Write a report: the tables in four formats, the figures, and one page that holds them all."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from analysis.load.run_folders import readable
from analysis.metrics import health
from analysis.metrics.definitions import reported_metrics
from analysis.report import latex, render
from analysis.report.page.figures import files
from analysis.report.page.svg import swatch
from analysis.report.sections import Part
from analysis.stats import curves


def write(parts: Sequence[Part], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; `skipped` are notes on what is in no part.

    Raises OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in parts[0].tables:
        _table(parts, name, out)
    _remove_drawn(out / "figures")
    for part in parts:
        _figures(part, out / "figures" / part.place)
    (out / "table.md").write_text(render.markdown(parts, skipped), encoding="utf-8")
    (out / "table.tex").write_text(latex.document(parts), encoding="utf-8")
    context = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "sections": [part.context for part in parts],
        "skipped": skipped,
        "meanings": reported_metrics(sorted({k for part in parts for k in part.ks})),
        "kl_steps": curves.KL_STEPS,
    }
    (out / "report.html").write_text(page(context), encoding="utf-8")


def _remove_drawn(figures: Path) -> None:
    """An earlier report's figures, which may be of other experiments; nobody else's files."""
    for file in figures.glob("*/*"):
        if file.suffix in (".svg", ".png"):
            file.unlink()
    for folder in figures.glob("*"):
        with suppress(OSError):  # something else lies there
            folder.rmdir()


def _figures(part: Part, folder: Path) -> None:
    """The page's figures of an experiment, a file for each choice of an axis."""
    for figure in part.context["figures"]:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files(figure, part.context["style"], part.context["undrawn"]).items():
            (folder / f"{name}.svg").write_text(text, encoding="utf-8")


def _table(parts: Sequence[Part], name: str, out: Path) -> None:
    """One table of all parts, in CSV and Parquet."""
    tables = [part.tables[name].assign(experiment=part.name) for part in parts]
    # Without rows a table has no types either, and would turn the others' counts into floats.
    together = pd.concat([table for table in tables if len(table)] or tables[:1])
    together.insert(0, "experiment", together.pop("experiment"))
    together.to_csv(out / name, index=False)
    _typed(together).to_parquet((out / name).with_suffix(".parquet"), index=False)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Columns that Parquet has a type for: where texts and numbers are mixed, all are texts."""
    mixed = [name for name in table if table[name].dtype == object]
    return table.assign(**{name: table[name].astype("string") for name in mixed})


# The page as one file: the template filled, with its style and script inside. Its content security
# policy lets no request out and no script run but the page's own.


FOLDER = Path(__file__).parent
STYLES = ("figures", "style")  # the second has the figures' text larger on narrow screens
SCRIPTS = ("text", "diff", "tables", "choices", "matrix", "explorer", "start")


def page(context: Mapping[str, Any]) -> str:
    """Everything that comes from a run folder is escaped, and made readable."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _shown(value) if type(value) is str else value,
    )
    helpers = (render.number, render.count, render.minutes, render.interval, render.missing)
    environment.globals |= {helper.__name__: helper for helper in helpers}
    environment.filters["breakable"] = _breakable
    parts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    script = '"use strict";\n' + "\n".join(parts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {
        "plural": render.plural,
        "most_in_matrix": render.MATRIX_LABELS,
        "swatch": swatch,
        "checks": health.CHECKS,
        "script": script,
        "script_hash": f"sha256-{digest}",
        "css": "".join((FOLDER / f"{name}.css").read_text("utf-8") for name in STYLES),
    }
    template = (FOLDER / "page.html.j2").read_text(encoding="utf-8").replace("95 %", "95&nbsp;%")
    return environment.from_string(template).render(context)


def _shown(text: str) -> str:
    """Readable, and no line ends between a number and its per cent."""
    return readable(text).replace("95 %", "95\u00a0%")


def _breakable(text: str) -> Markup:
    """Names of groups may be broken after an underscore, where a column is narrow."""
    return Markup(str(escape(_shown(text))).replace("_", "_<wbr>"))
