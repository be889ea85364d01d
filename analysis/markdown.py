"""Tables in Markdown, for reports, the pages of studies and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a pipe table, padded to be readable as text.

    The first column is left-aligned, the others right-aligned. Raises ValueError if a row has
    another number of columns than the heading.
    """
    from tabulate import tabulate

    if any(len(row) != len(heading) for row in rows):
        raise ValueError(f"a row has not the {len(heading)} columns of its heading")
    titles, *body = [list(map(_cell, row)) for row in (heading, *rows)]
    align = ["left", *["right"] * (len(heading) - 1)]
    return tabulate(body, titles, tablefmt="pipe", colalign=align, disable_numparse=True)


def _cell(text: str) -> str:
    """Return the text in one line, with pipes escaped."""
    return " ".join(text.split()).replace("|", "\\|")
