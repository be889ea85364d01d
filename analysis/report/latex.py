"""The main tables as LaTeX (booktabs), to be taken into a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.load.run_folders import readable
from analysis.report import render

if TYPE_CHECKING:
    from analysis.report.sections import Part

SPECIAL = {
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
    "@": "@",
}


def escaped(text: str) -> str:
    """The text as LaTeX shows it."""
    return "".join(SPECIAL.get(letter, letter) for letter in readable(text))


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A floating table, the first column left, the others right."""
    lines = [" & ".join(map(escaped, row)) + r" \\" for row in (heading, *rows)]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escaped(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def document(parts: Sequence[Part]) -> str:
    """table.tex: results and differences of each experiment; to be \\input, needs booktabs."""
    found = ["% \\usepackage{booktabs}"]
    for part in parts:
        results = part.results
        if not len(results):
            continue
        caption = f"{part.name}. {render.evaluated(results)} Means over seeds, 95 % intervals."
        found.append(table(*render.result_cells(results, part.ks), caption))
        for metric, cells in part.context["matrices"]:
            caption = (
                f"{part.name}, {metric}: row minus column with 95 % intervals; "
                "* separated after Holm's correction."
            )
            found.append(table(*cells, caption))
    return "\n\n".join(found) + "\n"
