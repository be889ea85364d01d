"""Feedback: what a model reads after a failed answer, before it answers again.

A failed answer is run on the problem's public tests, those that its statement shows. The hidden
tests never reach a model. The words are in the manner of RLEF (2410.02089), which names every
failed test: the first that failed, its input, the expected output, the program's output or its
error.

What a program printed is untrusted. Each text is bounded, its control characters are shown as code
points, and it stands in a fence that it cannot close. Tokens of a chat template in it are left as
they are, so whoever encodes an observation must not take them for special tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from envs.judge.checkers import comparable
from envs.problem import Judgement, Problem, Verdict
from envs.readable import readable
from envs.tasks.prompts import TEMPLATES, FeedbackTemplate
from envs.tasks.strength import python_texts, shown_tests

Kind = Literal["tests", "withheld", "foreign"]

MAX_PIECE_CHARS = 300  # of each text that an observation quotes
KEPT_PROBLEMS = 1000  # whose public tests are kept in memory
NO_PROGRAM, WITHHELD = "NO_PROGRAM", "WITHHELD"  # failures that are no verdict

_AT_LINE = re.compile(r"line ([0-9]{1,9}): ")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BACKTICKS = re.compile("`+")


def public_problem(problem: Problem) -> Problem | None:
    """Return the problem with its public tests alone, or None if it has none.

    They are its samples, or where its data set marks none, the tests that its statement shows. They
    run in their order. Its name and hash are other than the problem's, so that no cache mixes up
    their verdicts.
    """
    tests = problem.samples or tuple(shown_tests(problem))
    tests = tuple(test for test in tests if comparable(problem.checker, test.output))
    if not tests:
        return None
    return replace(
        problem,
        name=f"{problem.name}/public",
        samples=tests,
        tests=tests,
        generated_tests=0,
        solutions=(),
        incorrect_solutions=(),
        in_order=True,
    )


class Feedback:
    """Makes public problems, and observations from their judgements."""

    def __init__(self, kind: Kind, template: Path | None = None) -> None:
        """`kind`: `tests`; `withheld`, which says only that an answer is wrong; or `foreign`.

        `foreign` is `tests` about another problem, which the caller passes with a judgement of its
        public tests. Raises ValueError if the template cannot be used.
        """
        self.kind = kind
        key = "task.feedback_prompt" if template else ""
        self.template = FeedbackTemplate(template or TEMPLATES / "feedback.jinja", key)
        self._public: dict[object, Problem | None] = {}

    @property
    def digest(self) -> str:
        """16 hex digits over the template."""
        return self.template.digest

    def public(self, problem: Problem) -> Problem | None:
        """Return `public_problem(problem)`, which is kept; a public problem returns itself."""
        if problem.in_order:
            return problem
        key = problem.name, problem.hash, problem.statement, problem.samples
        if key not in self._public:
            if len(self._public) >= KEPT_PROBLEMS:
                del self._public[next(iter(self._public))]
            self._public[key] = public_problem(problem)
        return self._public[key]

    def observation(
        self, problem: Problem, judgement: Judgement, piece_chars: int = MAX_PIECE_CHARS
    ) -> str:
        """Return what the model reads after an answer that failed.

        `judgement` is that of `public(problem)`; each quoted text has at most `piece_chars`
        characters. The observation depends on the public problem and the program alone. Raises
        ValueError for a judgement of other tests, one without a failed test (accepted, or a failure
        of the judge), and if the template fails.
        """
        values: dict[str, object] = {"failure": WITHHELD, "sample": None}
        values |= dict.fromkeys(("input", "expected", "output", "error"), "")
        values |= {"fn_name": problem.fn_name}
        values |= {"one_of_several": problem.checker_program is not None}
        if judgement.verdict in (Verdict.ACCEPTED, Verdict.INFRA_ERROR):
            raise ValueError(f"{problem.name}: no feedback on a judgement of {judgement.verdict}")
        if self.kind != "withheld":
            values |= self._failure(problem, judgement, lambda text: _fenced(text, piece_chars))
        return self.template.render(values, problem)

    def _failure(
        self, problem: Problem, judgement: Judgement, fenced: Callable[[str], str]
    ) -> dict[str, object]:
        public = self.public(problem)
        if public is None or judgement.problem_hash != public.hash:
            raise ValueError(f"{problem.name}: feedback needs a judgement of its public tests")
        if not judgement.program:
            return {"failure": NO_PROGRAM}
        values: dict[str, object] = {
            "failure": judgement.verdict.value,
            "error": fenced(_error(judgement)),
        }
        if judgement.failed_test is None:  # it does not compile
            return values
        test = public.tests[judgement.failed_test]
        given, expected = python_texts(public, test)
        return values | {
            "sample": judgement.failed_test + 1,
            "input": fenced(given),
            "expected": fenced(expected),
            "output": fenced(judgement.output),
        }


def _error(judgement: Judgement) -> str:
    """Return the exception behind the line of the program that raised it."""
    found = _AT_LINE.match(judgement.exception)
    if not found:
        return judgement.exception
    lines = _LINE_END.split(judgement.program)
    number = int(found[1])
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    message = judgement.exception[found.end() :]
    return f"line {number}: {_bounded(source, MAX_PIECE_CHARS // 2)}\n{message}"


def _fenced(text: str, most: int) -> str:
    """Return a text in a fence that is longer than any in it; "" for an empty one."""
    text = _bounded(text.strip("\n"), most)
    if not text.strip():
        return ""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _bounded(text: str, most: int) -> str:
    """Return at most `most` readable characters of a text; of a longer one the middle is left out.

    A long text is cut before it is made readable, which only adds characters.
    """
    if len(text) > 2 * most:
        text = f"{text[:most]}…{text[-most:]}"
    text = readable(text)
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
