"""Tables in Markdown: of reports, of studies' pages and of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table, the first column left, the others right, padded to be readable as text.

    Raises ValueError where a row has other columns than the heading.
    """
    from tabulate import tabulate

    if any(len(row) != len(heading) for row in rows):
        raise ValueError(f"a row has not the {len(heading)} columns of its heading")
    heading, *body = [list(map(_cell, row)) for row in (heading, *rows)]
    align = ["left", *["right"] * (len(heading) - 1)]
    return tabulate(body, heading, tablefmt="pipe", colalign=align, disable_numparse=True)


def _cell(text: str) -> str:
    """In one line, and without a cell's end in it."""
    return " ".join(text.split()).replace("|", "\\|")
