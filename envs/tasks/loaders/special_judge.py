"""Infer a problem's checker from its statement and its tests by written rules.

Data sets rarely record that a problem accepts several answers, but the statement says so in a few
usual phrases. Such a problem is marked `needs_checker`, because comparing with one expected output
would reject right answers. An unusual phrase can escape these rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envs.judge.checker import infer_checker
from envs.problem import Test

_SAME_SENTENCE = r"[^.\n]"
_FREEDOMS = {
    "any answer": (
        # "print any of them", "you may output any one"
        r"(?<!not )(?<!n't )\b(?:print|output|return|report|construct|display|give|printing|"
        r"outputting)\s+(?:out\s+)?(?:any(?:one)?\b(?!\s+number\s+of)|either of)",
        # "find any suitable array", but not "if he is able to find any path"
        rf"(?:^|[.\n])(?:(?!able to|cannot|can't|whether){_SAME_SENTENCE})*\bfind any(?:one)?\b",
        # "any sequence of at most 20000 moves will be accepted"
        rf"\bany\b{_SAME_SENTENCE}{{0,80}}\b(?:will be|would be|is|are|be)\s+"
        r"(?:accepted|considered (?:as )?correct|considered valid)",
        # in the notes to the samples
        r"\bthere (?:are|exist) other (?:possible |valid |correct )?(?:answers|solutions)\b",
        r"\bone of (?:the )?possible (?:answers|solutions|outputs) (?:for|to) the\b",
        # "there exists an answer with fewer stages, but you are not required to minimize it"
        r"\bnot (?:required|have|need) to (?:minimi[sz]e|maximi[sz]e)\b",
    ),
    "any order": (
        r"\b(?:print|printed|output|display|displayed)\b"
        rf"(?:(?!number|minim|maxim|whether|\bif\b){_SAME_SENTENCE}){{0,100}}"
        r"\bin (?:any|an arbitrary|arbitrary) order\b",
    ),
    "interactive": (
        r"\binteractive (?:problem|task)\b",
        r"\bflush\b.{0,3} the output\b|\bfflush\b|\bflush your output\b",
    ),
}
_NEEDS_CHECKER = {
    reason: re.compile("|".join(patterns), re.IGNORECASE) for reason, patterns in _FREEDOMS.items()
}
_ANY_CASE = re.compile(
    r"\b(?:letters?|characters?|strings?|print|printed|output|displayed|answer|YES|NO)\b"
    rf"{_SAME_SENTENCE}*(?:\b(?:any|arbitrary|either) (?:letter )?(?:case|register)\b|"
    r"\b(?:either|in) (?:the )?(?:upper|lower)-?\s?case or )"
    rf"|\b(?:print|output|answer)\b{_SAME_SENTENCE}*\bcase[- ]insensitiv",
    re.IGNORECASE,
)


def checker_for(statement: str, tests: Sequence[Test], fn_name: str | None) -> str:
    """Return the problem's checker; `needs_checker` if no comparison can decide."""
    if why_needs_checker(statement, tests):
        return "needs_checker"
    return "call" if fn_name else comparing_checker(statement, tests)


def why_needs_checker(statement: str, tests: Sequence[Test]) -> str | None:
    """Return why several answers are right, or None.

    Two tests with the same input and different outputs prove it. Otherwise the statement decides:
    any answer is accepted, parts of the answer may come in any order, or the problem is
    interactive.
    """
    outputs: dict[str, list[str]] = {}
    for test in tests:
        if outputs.setdefault(test.input, test.output.split()) != test.output.split():
            return "two outputs for one input"
    text = " ".join(statement.replace("\n\n", ".\n").split(" "))
    for reason, pattern in _NEEDS_CHECKER.items():
        if pattern.search(text):
            return reason
    return None


def comparing_checker(statement: str, tests: Sequence[Test]) -> str:
    """Return the checker of a stdin problem: `floats`, `case_insensitive` or `tokens`.

    `floats` if an expected output has a float literal; else `case_insensitive` if the outputs have
    letters and the statement allows either case.
    """
    checker = infer_checker(test.output for test in tests)
    letters = any(char.isalpha() for test in tests for char in test.output[:1000])
    if checker == "tokens" and letters and _ANY_CASE.search(statement):
        return "case_insensitive"
    return checker
