"""Tables in Markdown: of reports, of studies' pages and of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table, the first column left, the others right, padded to be readable as text."""
    from tabulate import tabulate

    heading, *body = [[cell.replace("|", "\\|") for cell in row] for row in (heading, *rows)]
    align = ["left", *["right"] * (len(heading) - 1)]
    return tabulate(body, heading, tablefmt="pipe", colalign=align, disable_numparse=True)
