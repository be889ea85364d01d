"""How a contest problem is told to a model: a Jinja template for each kind, in conf/prompt/."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from envs.problem import Problem

TEMPLATES = Path(__file__).resolve().parents[2] / "conf" / "prompt"


def contest_prompt(problem: Problem) -> str:
    """The user message. Samples that the statement shows itself are not shown again."""
    template = _template("call" if problem.fn_name else "stdin")
    return template.render(
        statement=problem.statement.strip(),
        samples=problem.samples if not _shown(problem) else (),
        fn_name=problem.fn_name,
        starter_code=problem.starter_code,
    )


@cache
def templates_digest() -> str:
    """Changes with any template: prompts belong to the data that a run is about."""
    texts = [file.read_bytes() for file in sorted(TEMPLATES.glob("*.jinja"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _shown(problem: Problem) -> bool:
    words = " ".join(problem.statement.split())
    return all(" ".join(test.input.split()) in words for test in problem.samples)


@cache
def _template(kind: str) -> object:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=False,
    )
    return environment.get_template(f"{kind}.jinja")
