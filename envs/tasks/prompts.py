"""Solved examples before every problem of a run, taken out of its train split."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.problem import Problem
from envs.tasks.selection import StoredProblems

if TYPE_CHECKING:
    from envs.tasks.task import Task

LOOKED_AT = 200  # problems from the front of train, whose order depends on their statements alone


def with_few_shot(task: Task, count: int) -> Task:
    """`count` examples, the shortest with a right program among those looked at.

    The same for every problem and every seed; what is shown is no longer trained on. Raises
    ValueError where train has too few.
    """
    sizes = {
        index: size
        for index, problem in enumerate(task.train[:LOOKED_AT])
        if (size := _size(task, problem)) is not None
    }
    if len(sizes) < count:
        raise ValueError(
            f"task.few_shot={count}: only {len(sizes)} of the first {LOOKED_AT} problems to train "
            "on have a right program"
        )
    chosen = sorted(sorted(sizes, key=sizes.get)[:count])
    rest = [index for index in range(len(task.train)) if index not in chosen]
    train = task.train
    if isinstance(train, StoredProblems):
        kept = StoredProblems([train.entries[index] for index in rest])
    else:
        kept = [train[index] for index in rest]
    return replace(task, train=kept, examples=[train[index] for index in chosen])


def _size(task: Task, problem: Problem) -> int | None:
    """Characters of prompt and shortest answer; None without a right program."""
    if not problem.solutions:
        return None
    return len(task.prompt(problem)) + min(map(len, problem.solutions))


# How a problem is told to a model: a Jinja template, ours in conf/prompt/ or one's own.


TEMPLATES = Path(__file__).resolve().parents[2] / "conf" / "prompt"
VARIABLES = ("statement", "samples", "fn_name", "starter_code")


class Prompt:
    """The user message of a problem: samples that the statement shows itself are left out of it."""

    def __init__(self, path: Path, key: str = "") -> None:
        """`key` is what the configuration calls it. Raises ValueError in one line: no such file, a
        fault in it, or a variable that no problem has.
        """
        self.where = f"{key}={path}" if key else str(path)
        try:
            self.text = path.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ValueError(f"{self.where}: {why}") from error
        self._check()

    def __call__(self, problem: Problem) -> str:
        """Raises ValueError where the template cannot be filled in for this problem."""
        known = {name: getattr(problem, name) for name in VARIABLES}
        known |= {"statement": problem.statement.strip()}
        known |= {"samples": () if _shown(problem) else problem.samples}
        try:
            return self._template.render(known)
        except Exception as error:
            # a template calls whatever it likes
            told = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"{self.where}: for {problem.name}, {told}") from error

    @property
    def digest(self) -> str:
        """Changes with the template: prompts belong to the data that a run is about."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def _template(self) -> Any:
        return _environment().from_string(self.text)

    def _check(self) -> None:
        import jinja2
        import jinja2.meta

        try:
            unknown = jinja2.meta.find_undeclared_variables(_environment().parse(self.text))
            self._template  # noqa: B018 - some faults show only here
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"{self.where}, line {error.lineno}: {error.message}") from error
        if unknown := sorted(unknown - set(VARIABLES)):
            listed = ", ".join(VARIABLES)
            raise ValueError(f"{self.where}: there is no {unknown[0]!r}; a problem has {listed}")


class DefaultPrompt:
    """Ours: one template for programs that read stdin, one for functions."""

    def __init__(self) -> None:
        self.stdin, self.call = (Prompt(TEMPLATES / f"{kind}.jinja") for kind in ("stdin", "call"))

    def __call__(self, problem: Problem) -> str:
        return (self.call if problem.fn_name else self.stdin)(problem)

    @property
    def digest(self) -> str:
        """Changes with either template."""
        return hashlib.sha256((self.stdin.digest + self.call.digest).encode()).hexdigest()[:16]


def _environment() -> Any:
    import jinja2

    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=False)


def _shown(problem: Problem) -> bool:
    words = " ".join(problem.statement.split())
    return all(" ".join(test.input.split()) in words for test in problem.samples)
