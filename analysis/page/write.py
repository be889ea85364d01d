"""Write a report: the tables in four formats, the figures, and one page that holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from analysis import curves, latex, render
from analysis.metrics import metrics
from analysis.page import html
from analysis.page.files import files
from analysis.parts import Part


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
        "meanings": metrics(sorted({k for part in parts for k in part.ks})),
        "kl_steps": curves.KL_STEPS,
    }
    (out / "report.html").write_text(html.page(context), encoding="utf-8")


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
