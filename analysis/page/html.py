"""The page as one file: the template filled, with its style and script inside.

Its content security policy lets no request out and no script run but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from analysis import health, render
from analysis.page.svg import swatch
from analysis.readable import readable

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
