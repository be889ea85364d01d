"""The page's figures as files for papers and slides: light, with a key, whole without the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from analysis.page.figures import Figure, Styles
from analysis.page.svg import HEIGHT, WIDTH, Panel, key
from analysis.readable import readable

FOLDER = Path(__file__).parent
MARGIN, GAP, TITLE, ROW = 14, 20, 24, 22
NARROW, WIDE = 8, 11  # the most that a letter of the key takes, or nearly


def files(figure: Figure, style: Styles, undrawn: tuple[int, int] | None) -> dict[str, str]:
    """Name → SVG, a file for each axis that the figure may be drawn against.

    `undrawn`: how many groups are drawn of how many, where that is not all.
    """
    shown = {readable(label): one for label, one in style.items() if label in figure.labels}
    said = "{} of {} groups".format(*undrawn) if undrawn else ""
    return {
        "_".join([figure.name, *choice.split()]): _file(panels, shown, said)
        for choice, panels in figure.choices
    }


def _file(panels: Sequence[Panel], style: Styles, said: str) -> str:
    """Two panels in a row, and the key below."""
    columns = min(2, len(panels))
    width = 2 * MARGIN + columns * WIDTH + (columns - 1) * GAP
    width = max(width, *(2 * MARGIN + _key_width(label) for label in style))
    parts = []
    for i, panel in enumerate(panels):
        left = MARGIN + i % columns * (WIDTH + GAP)
        top = MARGIN + i // columns * (TITLE + HEIGHT + GAP)
        parts.append(
            f'<text class="title" x="{left}" y="{top + 14}">{escape(panel.title)}</text>'
            f'<g class="panel" transform="translate({left},{top + TITLE})">{panel.body}</g>'
        )
    top = MARGIN + -(-len(panels) // columns) * (TITLE + HEIGHT + GAP)
    places, height = _places(list(style), width, top)
    for (label, one), (x, y) in zip(style.items(), places, strict=True):
        parts.append(
            f'<g class="swatch {one.colour}" transform="translate({x},{y})">{key(one)}</g>'
            f'<text x="{x + 40}" y="{y + 11.5}">{escape(label)}</text>'
        )
    if said:
        parts.append(f'<text x="{MARGIN}" y="{height + 12}">{said}</text>')
        height += ROW
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>'
    paper = f'<rect class="paper" {size}/>'
    return readable("\n".join([head, f"<style>\n{_light()}</style>", paper, *parts, "</svg>\n"]))


def _places(labels: Sequence[str], width: int, top: int) -> tuple[list[tuple[int, int]], int]:
    """Where each label's key begins, in rows from `top`; and where the last row ends."""
    places: list[tuple[int, int]] = []
    x = MARGIN
    for label in labels:
        takes = _key_width(label)
        if x > MARGIN and x + takes > width - MARGIN:
            x, top = MARGIN, top + ROW
        places.append((x, top))
        x += takes + GAP
    return places, top + ROW


def _key_width(label: str) -> int:
    return 40 + sum(WIDE if one.isupper() or one > "\x7f" else NARROW for one in label)


def _light() -> str:
    """The page's style of figures in its light colours, each written out: some programs that read
    SVG know no variables."""
    page = (FOLDER / "style.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): ([^;]+);", page[: page.index("}")]))
    drawn = (FOLDER / "figures.css").read_text(encoding="utf-8")
    own = (
        "text { font-family: sans-serif; font-size: 13px; fill: var(--ink); }\n"
        ".title { font-size: 14.5px; font-weight: 600; }\n.paper { fill: var(--paper); }\n"
    )
    return re.sub(r"var\(--([\w-]+)\)", lambda name: colours[name[1]], own + drawn)
