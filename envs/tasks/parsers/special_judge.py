"""Infer a problem's checker from its statement and its tests by written rules.

Data sets rarely record that a problem accepts several answers, but the statement says so in a few
usual phrases. Such a problem is marked `needs_checker`, because comparing with one expected output
would reject right answers. An unusual phrase can escape these rules: where a statement asks for a
construction and says nothing more, only a program that constructs another one shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envs.judge.checkers import has_integers, infer_checker
from envs.problem import Test
from envs.tasks.parsers.answer_format import (
    MAX_STATEMENT_CHARS,
    allows_any_case,
    asks_for_digits,
    most_decimals,
    printed_decimals,
    rounded_decimals,
    stated_tolerance,
)

_CHECKED_CHARS = 100_000  # of an output
_SAME = r"[^.\n]"  # within a sentence
_PRINT = r"(?:print|output|return|report|construct|display|give|provide|show|printing|outputting)"
_ANSWERS = r"(?:answers?|solutions?|outputs?|constructions?|ways?)"
_GOOD = r"(?:possible|valid|correct|acceptable|accepted|optimal|allowed|suitable|fine)"
_FREEDOMS = {
    "any answer": (
        # "print any of them", "you may output any one"
        rf"(?<!not )(?<!n't )\b{_PRINT}\s+(?:out\s+)?"
        r"(?:any(?:one)?\b(?!\s+(?:extra|other|additional|number\s+of))|either of)",
        # "print one of them", "output only one of the possible answers"
        rf"\b{_PRINT}\s+(?:just |only )?one of (?:them|those|these|the (?:{_GOOD}))\b",
        # "print an arbitrary one"; "print a valid edge coloring" (code_contests_test 23)
        rf"\b{_PRINT}\s+(?:(?:an )?arbitrary\b(?! order)|(?:a|some|one) "
        r"(?:valid|possible|suitable|feasible)\b(?! number))",
        # "if there are several ways, choose any"
        rf"\b(?:multiple|several|many|more than one)\b{_SAME}{{0,40}}\b{_ANSWERS}\b{_SAME}{{0,60}}"
        r"\b(?:choose|pick|use|select|take|find) (?:any|one|either)\b(?! (?:which|that|with))",
        # "find any suitable array", but not "if he is able to find any path"
        rf"(?:^|[.\n])(?:(?!able to|cannot|can't|whether){_SAME})*\bfind any(?:one)?\b",
        # "any sequence of at most 20000 moves will be accepted"
        rf"\bany\b{_SAME}{{0,80}}\b(?:will be|would be|is|are|be)\s+"
        r"(?:accepted|considered (?:as )?correct|considered valid)",
        # "all correct answers are accepted"
        rf"\b(?:all|multiple|several|many|other)(?: {_GOOD})? {_ANSWERS} "
        r"(?:are|will be|would be|may be|can be)(?: also)? (?:accepted|acceptable|allowed)\b",
        # in the notes to the samples
        r"\bthere (?:are|exist) other (?:possible |valid |correct )?(?:answers|solutions)\b",
        r"\bone of (?:the )?possible (?:answers|solutions|outputs) (?:for|to) the\b",
        # "your solution is correct if the value satisfies" (apps_stdin_with_wrong 17)
        r"\byour (?:solution|answer|output) (?:is|will be) (?:considered )?"
        r"(?:correct|accepted|valid) if (?:and only if )?"
        rf"(?!{_SAME}{{0,200}}(?:error|relative|differ|jury|checker|\^\{{? ?-|1e-)|it )",
        # "the number of cycles in your solution" (apps_stdin_with_wrong 23)
        r"\b(?:in|of) your (?:solution|construction|partition|colou?ring|schedule)\b",
        # "there exists an answer with fewer stages, but you are not required to minimize it"
        r"(?:\bnot|n't) (?:required|have|need) to (?:minimi[sz]e|maximi[sz]e)\b",
    ),
    "any order": (
        rf"\b(?:print|printed|output|display|displayed)\b"
        rf"(?:(?!number|minim|maxim|whether|\bif\b){_SAME}){{0,100}}"
        r"\bin (?:any|an arbitrary|arbitrary) order\b",
    ),
    "interactive": (
        r"\binteractive (?:problem|task)\b",
        r"\bflush\b.{0,3} the output\b|\bfflush\b|\bflush your output\b",
    ),
}
# These count only where a right output is more than a number or a word, since a way to the answer
# can be one of several too.
_FREEDOMS_OF_CONSTRUCTIONS = (
    rf"\bthere (?:are|exist|may be|might be) (?:also )?other (?:{_GOOD} )?{_ANSWERS}\b",
    rf"\bthere (?:may|might) be (?:several|multiple) (?:{_GOOD} )?{_ANSWERS}\b",
    # "Below is one of the possible solutions", "one possible distribution" (code_contests_train 7)
    rf"\b(?:one of (?:the|many|several)|another|an alternative) {_GOOD} {_ANSWERS}\b",
    rf"\b(?:shows|show|is|see) (?:only )?one possible (?!test|case|path|move){_SAME}{{3}}",
    rf"\bnot the only (?:{_GOOD} )?{_ANSWERS}\b",
    rf"\b{_ANSWERS} (?:(?:is|are) not|isn't|aren't|(?:may|need) not be) (?:necessarily )?unique\b",
    # of the output: "the order of the vertices within the edges does not matter"
    rf"\border\b{_SAME}{{0,80}}\b(?:(?:does|do) ?n[o']t matter|is not important|is arbitrary)",
)
_NEEDS_CHECKER = {
    reason: re.compile("|".join(patterns), re.IGNORECASE) for reason, patterns in _FREEDOMS.items()
}
_SEVERAL_CONSTRUCTIONS = re.compile("|".join(_FREEDOMS_OF_CONSTRUCTIONS), re.IGNORECASE)

_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?")  # 0110 is a string

# A decision, and an example that proves it: "If an appropriate input array exists, print YES,
# followed by the input array" (code_contests_test 43, 22), "If there are two disjoint sets, print
# their descriptions" (taco_special_judge 46), "Print -1 if there is no solution. Otherwise, print a
# k x k matrix" (taco_stdin 343). Of the 105 marked rows of the data sets, this rule alone finds 51;
# it marks no row that has one answer.
_OUTPUT_SECTION = re.compile(r"\n[\s*#-]*output(?: format)?[\s:*#-]*\n", re.IGNORECASE)
_EXAMPLES = re.compile(r"\n[\s*#-]*(?:sample|example|constraints|note)", re.IGNORECASE)
_DECISION = re.compile(
    r"\b(?:if|in case)\b[^.\n]{0,80}\b(?:possible|exists?|there (?:is|are)|answer is)\b",
    re.IGNORECASE,
)
_EXAMPLE = re.compile(
    r"\b(?:print|output|followed by|display)\b[^.\n]{0,100}"
    r"\b(?:the|a|an|its|that|this|such|their|two|three|four|k|n|m) (?:\w{1,20} ){0,2}?"
    r"(?:sequences?|permutation|array|strings?|sets?|subsets?|path|cycle|route|plan|tree|graph|"
    r"matrix|table|grid|schedule|label(?:s|ing)|numbers|integers|pairs?|indices|indexes|vertices|"
    r"edges|moves|operations|coordinates|descriptions?|lines)\b",
    re.IGNORECASE,
)
_UNIQUE = re.compile(
    r"\bunique\b|\blexicographically\b|\b(?:smallest|largest|shortest|earliest|comes first)\b"
    r"|\bi-th\b[^.\n]{0,40}\b(?:least|minim|maxim|number of|cost|distance|answer)",
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
    any answer is accepted, parts of the answer may come in any order, the problem is interactive,
    or a construction is asked for that need not be the only one.
    """
    outputs: dict[str, list[str]] = {}
    for test in tests:
        if outputs.setdefault(test.input, test.output.split()) != test.output.split():
            return "two outputs for one input"
    statement = statement[:MAX_STATEMENT_CHARS]
    text = " ".join(statement.replace("\n\n", ".\n").split(" "))
    for reason, pattern in _NEEDS_CHECKER.items():
        if pattern.search(text):
            return reason
    before_examples, output_section = _before_the_examples(statement)
    if _SEVERAL_CONSTRUCTIONS.search(text) or _asks_for_an_example(output_section):
        words = before_examples.lower()
        if any(_is_construction(test.output, words) for test in tests):
            return "several constructions"
    return None


def _is_construction(output: str, words: str) -> bool:
    """Return whether an output is more than a number or a word a line: several, or a string.

    `words`: the part of the statement that names the fixed words that can be printed.
    """
    lines = [line.split(None, 1) for line in output[:_CHECKED_CHARS].splitlines()]
    tokens = {line[0].lower() for line in lines if line}
    strings = (token for token in tokens if len(token) > 1 and not _NUMBER.fullmatch(token))
    return any(len(line) > 1 for line in lines) or any(token not in words for token in strings)


def _asks_for_an_example(output_section: str) -> bool:
    """Return whether the section on the output asks for an example if there is one."""
    asked = _EXAMPLE.search(output_section) and _DECISION.search(output_section)
    return bool(asked) and not _UNIQUE.search(output_section)


def _before_the_examples(statement: str) -> tuple[str, str]:
    """Return the statement up to its examples, and the section on the output in it."""
    begin = _OUTPUT_SECTION.search(statement)
    end = _EXAMPLES.search(statement, begin.end() if begin else 0)
    text = statement[: end.start()] if end else statement
    return text, text[begin.end() :] if begin else ""


def comparing_checker(statement: str, tests: Sequence[Test]) -> str:
    """Return the checker of a stdin problem, from its statement and its expected outputs.

    `floats` with the tolerance that the statement allows; else, if an expected output has a float
    literal, `rounded` where the statement asks for rounding and `floats` where it does not; else
    `text` if the answer is a string of digits, `case_insensitive` if it has letters and the
    statement allows either case, or `tokens`.
    """
    outputs = [test.output for test in tests]
    floats = infer_checker(outputs) == "floats"
    tolerance = stated_tolerance(statement) if floats or has_integers(outputs) else None
    if tolerance is not None:
        absolute = max(tolerance.absolute, _rounding_error(outputs))
        return f"floats absolute={absolute!r} relative={tolerance.relative!r}"
    if floats:
        decimals = rounded_decimals(statement)
        return "floats" if decimals is None or decimals < most_decimals(outputs) else "rounded"
    letters = any(char.isalpha() for output in outputs for char in output[:1000])
    any_case = letters and allows_any_case(statement)
    padded = has_integers(outputs, padded=True)
    if padded or (has_integers(outputs) and asks_for_digits(statement)):
        return "text case=any" if any_case else "text"
    return "case_insensitive" if any_case else "tokens"


def _rounding_error(outputs: Sequence[str]) -> float:
    """Return how far rounded expected outputs can be off the answer.

    A right answer can differ by it, whatever tolerance the statement allows.
    """
    decimals = printed_decimals(outputs)
    return 0.0 if decimals is None else 0.5 * 10.0**-decimals
