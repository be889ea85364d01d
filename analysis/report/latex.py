"""table.tex: the main tables in LaTeX (booktabs), to be included in a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from analysis.report import render
from envs.readable import readable

if TYPE_CHECKING:
    from analysis.report.experiment import Section

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
            f"{section.name}. {render.evaluation_size(section.results)} Means over seeds, 95 % "
            "intervals."
        )
        heading, rows = render.result_cells(section.results, section.ks)
        blocks.append(latex_table(heading, rows, caption))
        for temperature in section.temperatures:
            cells = render.further_cells(section.results, section.ks, temperature)
            blocks.append(latex_table(*cells, f"{caption} At temperature {temperature:g}."))
        for metric, (heading, rows) in section.context["matrices"]:
            caption = (
                f"{section.name}, {metric}: row minus column with 95 % intervals; "
                "* separated after Holm's correction."
            )
            blocks.append(latex_table(heading, rows, caption))
    return "\n\n".join(blocks) + "\n"
