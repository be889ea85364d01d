"""Prompts: Jinja templates for a problem, and few-shot examples before it.

The default templates are in conf/prompt/; `task.prompt` and `task.feedback_prompt` name others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.problem import Problem
from envs.tasks.stored import StoredProblems
from envs.tasks.strength import python_texts, stands_as_example

if TYPE_CHECKING:
    from envs.tasks.task import Task

TEMPLATES = Path(__file__).resolve().parents[2] / "conf" / "prompt"
FEW_SHOT_CANDIDATES = 200  # from the front of train, whose order depends on statements alone


class Template:
    """A Jinja template in a file, of which the variables are known."""

    subject = ""  # what has the variables, in words
    variables: tuple[str, ...] = ()

    def __init__(self, path: Path, key: str = "") -> None:
        """Read and check the template. `key`: the configuration key that names it.

        A relative path that does not exist here is one below this repository. Raises ValueError in
        one line: no such file, a syntax error, or an unknown variable.
        """
        self.where = f"{key}={path}" if key else str(path)
        try:
            self.text = template_file(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ValueError(f"{self.where}: {reason}") from error
        self._check()

    def render(self, values: Mapping[str, object], problem: Problem) -> str:
        """Fill in the variables. Raises ValueError if the template fails for this problem."""
        try:
            return self._template.render(values)
        except Exception as error:
            # a template may call anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"{self.where}: for {problem.name}, {reason}") from error

    @property
    def digest(self) -> str:
        """16 hex digits over the template."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def _template(self) -> Any:
        return _jinja_environment().from_string(self.text)

    def _check(self) -> None:
        import jinja2
        import jinja2.meta

        try:
            tree = _jinja_environment().parse(self.text)
            unknown = sorted(jinja2.meta.find_undeclared_variables(tree) - set(self.variables))
            self._template  # noqa: B018 - some errors show only on compilation
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"{self.where}, line {error.lineno}: {error.message}") from error
        if unknown:
            listed = ", ".join(self.variables)
            raise ValueError(
                f"{self.where}: there is no {unknown[0]!r}; {self.subject} has {listed}"
            )


class PromptTemplate(Template):
    """The user message of a problem. Samples that the statement shows itself are left out.

    `own`: the rows are the user's own, and their samples are left out only if that they stand in
    the statement is no coincidence. The published data sets keep the rule of earlier runs.
    """

    subject = "a problem"
    # calls: of a function, each sample as "name(arguments) → result"
    variables = ("statement", "samples", "fn_name", "starter_code", "calls")

    def __init__(self, path: Path, key: str = "", *, own: bool = False) -> None:
        """Raises as Template."""
        super().__init__(path, key)
        self.own = own

    def __call__(self, problem: Problem) -> str:
        """Render the prompt. Raises ValueError if the template fails for this problem."""
        if self.own:
            shown = all(stands_as_example(problem, test) for test in problem.samples)
        else:
            words = " ".join(problem.statement.split())
            shown = all(" ".join(test.input.split()) in words for test in problem.samples)
        samples = () if shown else problem.samples
        calls = [" → ".join(python_texts(problem, test)) for test in samples if problem.fn_name]
        values: dict[str, object] = {
            "statement": problem.statement.strip(),
            "samples": samples,
            "fn_name": problem.fn_name,
            "starter_code": problem.starter_code,
            "calls": calls,
        }
        return self.render(values, problem)

    @property
    def digest(self) -> str:
        """16 hex digits over the template and its rule on samples."""
        text = f"{self.text}\nown samples" if self.own else self.text
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class FeedbackTemplate(Template):
    """What is said of a failed program; `envs.feedback` fills it in."""

    subject = "feedback"
    # failure: a verdict, NO_PROGRAM or WITHHELD; sample: the number of the failed one, from 1;
    # fn_name: of the problem; input, expected, output, error: texts in fences, "" for none;
    # one_of_several: `expected` is one accepted output of several
    variables = (
        *("failure", "sample", "fn_name", "input", "expected", "output", "error"),
        "one_of_several",
    )


class DefaultPrompt:
    """The default templates: one for programs that read stdin, one for functions.

    `own`: the rows are the user's own (see PromptTemplate), and samples of functions are shown.
    """

    def __init__(self, *, own: bool = False) -> None:
        call = "call_with_samples.jinja" if own else "call.jinja"
        self.stdin = PromptTemplate(TEMPLATES / "stdin.jinja", own=own)
        self.call = PromptTemplate(TEMPLATES / call, own=own)

    def __call__(self, problem: Problem) -> str:
        return (self.call if problem.fn_name else self.stdin)(problem)

    @property
    def digest(self) -> str:
        """16 hex digits over both templates."""
        return hashlib.sha256((self.stdin.digest + self.call.digest).encode()).hexdigest()[:16]


def template_file(template: Path) -> Path:
    """Return where a template is: a relative path may be one below this repository."""
    here, bundled = template.expanduser(), TEMPLATES.parents[1] / template
    return bundled if not here.exists() and bundled.exists() else here


def with_few_shot(task: Task, count: int) -> Task:
    """Return the task with `count` examples, taken out of its train split.

    Examples are the candidates with the shortest prompt and right program. They are the same for
    every problem and seed. Raises ValueError if too few candidates have a right program.
    """
    sizes = {
        index: len(task.prompt(problem)) + min(map(len, problem.solutions))
        for index, problem in enumerate(task.train[:FEW_SHOT_CANDIDATES])
        if problem.solutions
    }
    if len(sizes) < count:
        raise ValueError(
            f"task.few_shot={count}: only {len(sizes)} of the first {FEW_SHOT_CANDIDATES} problems "
            "to train on have a right program"
        )
    chosen = sorted(sorted(sizes, key=sizes.__getitem__)[:count])
    rest = [index for index in range(len(task.train)) if index not in chosen]
    train: Sequence[Problem] = task.train
    examples = [train[index] for index in chosen]
    if isinstance(train, StoredProblems):
        train = StoredProblems([train.entries[index] for index in rest])
    else:
        train = [train[index] for index in rest]
    return replace(task, train=train, examples=examples)


def _jinja_environment() -> Any:
    import jinja2

    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=False)
