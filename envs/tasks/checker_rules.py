"""Infer a problem's checker from its statement and its tests by written rules.

Data sets rarely record that a problem accepts several answers, but the statement says so in a few
usual phrases (checker_rules.yaml). Such a problem is marked `needs_checker`, because comparing with
one expected output would reject right answers. An unusual phrase can escape these rules: where a
statement asks for a construction and says nothing more, only a program that constructs another one
shows it.

The second part reads how an answer is compared: tolerance, rounding, digits, case. Each rule names
the rows of the data sets that made it (`docs/reference/judging.md` lists what the rules change).
Statements are cut into sentences first, and every expression is searched in one sentence at a time,
so that the time is proportional to the length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from envs.judge.checkers import INTEGER, as_bytes
from envs.problem import Test

MAX_STATEMENT_CHARS = 100_000
MAX_TOLERANCE = 0.1
_MANY_DECIMALS = 4
_CHECKED_CHARS = 100_000  # of an output
_PHRASES: Any = yaml.load(Path(__file__).with_suffix(".yaml").read_bytes(), yaml.CSafeLoader)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    text = "|".join(patterns)
    for name, words in _PHRASES["words"].items():
        text = text.replace(f"<{name}>", words)
    return re.compile(text, re.IGNORECASE)


_NEEDS_CHECKER = {reason: _any_of(found) for reason, found in _PHRASES["freedoms"].items()}
_SEVERAL_CONSTRUCTIONS = _any_of(_PHRASES["several constructions"])
_PATTERNS = {name: _any_of(found) for name, found in _PHRASES["construction"].items()}
_PATTERNS |= {name: re.compile("|".join(found)) for name, found in _PHRASES["sentence"].items()}

# An exponent alone (`1e5`) is no float: it is more often a name or a hexadecimal string.
_FLOAT_WITH_POINT = re.compile(rb"[+-]?+(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_PADDED_INTEGER = re.compile(rb"[+-]?+0[0-9]++")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?")  # 0110 is a string


def _found(name: str, text: str, start: int = 0) -> re.Match[str] | None:
    """Return where a text, from `start` on, has one of the phrases of this name."""
    return _PATTERNS[name].search(text, start)


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
    begin = _found("output_section", statement)
    end = _found("examples", statement, begin.end() if begin else 0)
    before_examples = statement[: end.start()] if end else statement
    section = before_examples[begin.end() :] if begin else ""
    asks_for_one = _found("example", section) and _found("decision", section)
    if _SEVERAL_CONSTRUCTIONS.search(text) or (asks_for_one and not _found("unique", section)):
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


def comparing_checker(statement: str, tests: Sequence[Test]) -> str:
    """Return the checker of a stdin problem, from its statement and its expected outputs.

    `floats` with the tolerance that the statement allows; else, if an expected output has a float
    literal, `rounded` where the statement asks for rounding and `floats` where it does not; else
    `text` if the answer is a string of digits, `case_insensitive` if it has letters and the
    statement allows either case, or `tokens`.
    """
    outputs = [test.output for test in tests]
    floats = _any_token(_FLOAT_WITH_POINT, (output for output in outputs if "." in output))
    integers = not floats and _any_token(INTEGER, outputs)
    tolerance = stated_tolerance(statement) if floats or integers else None
    if tolerance is not None:
        # a right answer can differ by how far rounded expected outputs are off
        printed = printed_decimals(outputs)
        absolute = max(tolerance.absolute, 0.0 if printed is None else 0.5 * 10.0**-printed)
        return f"floats absolute={absolute!r} relative={tolerance.relative!r}"
    if floats:
        decimals = rounded_decimals(statement)
        return "floats" if decimals is None or decimals < most_decimals(outputs) else "rounded"
    letters = any(char.isalpha() for output in outputs for char in output[:1000])
    any_case = letters and allows_any_case(statement)
    padded = integers and _any_token(_PADDED_INTEGER, outputs)
    if padded or (integers and asks_for_digits(statement)):
        return "text case=any" if any_case else "text"
    return "case_insensitive" if any_case else "tokens"


def _any_token(pattern: re.Pattern[bytes], outputs: Iterable[str]) -> bool:
    """Return whether a token of the expected outputs is of a kind."""
    return any(any(map(pattern.fullmatch, as_bytes(output).split())) for output in outputs)


# What a statement says about how an answer is compared.

_MINUS = str.maketrans(dict.fromkeys("−–—‒‐‑﹣－", "-") | dict.fromkeys("×·⋅∙", "*") | {"＾": "^"})
_SUPERSCRIPT = re.compile("10[ ]?([⁻⁰¹²³⁴-⁹]{2,4})")
_FROM_SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_LATEX = re.compile(r"\\(?:times|cdot)\b|\\(?:text|mathrm|rm)\b|\\[,;: !]|[${}`]|</?su[bp]>")
_TIMES = (r"\times", r"\cdot")
# A period within a number, as in 0.01, ends no sentence.
_SENTENCE_END = re.compile(r"[.!?](?=[\s)\"'”]|$)|\n\s*\n|\n\s*[-*•]\s|;")


@dataclass(frozen=True)
class Tolerance:
    """The largest error of a right answer; a right answer needs to meet only one of the two."""

    absolute: float
    relative: float


def stated_tolerance(statement: str) -> Tolerance | None:
    """Return the tolerance that a statement allows, or None.

    "absolute or relative error ... 10^-6" allows either; "error of 1e-6" without a kind does too;
    "differs from the correct answer by at most 10^-6" is absolute. Of several, the smallest counts,
    since larger ones are for subtasks (taco_special_judge 44). Rows that made it: all 14 of
    taco_special_judge with a tolerance, taco_stdin 62, code_contests_test 0, and affischutskick of
    the olympiad rows, whose statement is Swedish.
    """
    found = list(filter(None, map(_tolerance_of, _sentences(_plain(statement)))))
    if not found:
        return None
    smallest = min(max(one.absolute, one.relative) for one in found)
    alike = [one for one in found if max(one.absolute, one.relative) == smallest]
    return Tolerance(max(one.absolute for one in alike), max(one.relative for one in alike))


def _tolerance_of(sentence: str) -> Tolerance | None:
    error, distance = _found("error", sentence), _found("distance", sentence)
    if not (error or distance) or not _found("answer", sentence):
        return None
    if _found("about_the_input", sentence) and "error" not in sentence:
        return None
    numbers = [_value(match) for match in _PATTERNS["small_number"].finditer(sentence)]
    numbers = [number for number in numbers if 0 < number <= MAX_TOLERANCE]
    if not numbers:
        return None
    number = min(numbers)
    absolute = "absolut" in sentence or (bool(distance) and not error)
    relative = "relativ" in sentence
    if not absolute and not relative:
        absolute = relative = True
    return Tolerance(number if absolute else 0.0, number if relative else 0.0)


def _value(match: re.Match[str]) -> float:
    if match["power"]:
        return float(match["factor"] or 1) * 10.0 ** -int(match["power"])
    if match["exponent"]:
        return float(match["mantissa"]) * 10.0 ** -int(match["exponent"])
    return float(match["decimal"])


_COUNTS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def rounded_decimals(statement: str) -> int | None:
    """Return how many decimals an answer must be rounded to, or None.

    "rounded to two digits after the decimal point", "with exactly 3 decimals". Row that made it:
    taco_stdin 46, where 4.3300009 was accepted for 4.33.
    """
    for sentence in _sentences(_plain(statement)):
        if not _found("round", sentence) or not _found("after_point", sentence):
            continue
        count = _found("decimals", sentence)
        about_input = _found("about_the_input", sentence) or not _found("answer_or_value", sentence)
        if count and not about_input and not _found("no_rounding", sentence):
            text = count["count"]
            return _COUNTS[text] if text in _COUNTS else int(text)
    return None


def asks_for_digits(statement: str) -> bool:
    """Return whether a statement asks for digits as a text: 00101 is not 101 then.

    "without extra leading zeros", "a 4-digit number", "a string of length n", where it says what to
    print. Rows that made it: taco_stdin 182, 397, code_contests_test 66.
    """
    for sentence in _sentences(_plain(statement)):
        printing = _found("printing", sentence)
        if printing and _found("digit_text", sentence, printing.end()):
            return True
    return False


def allows_any_case(statement: str) -> bool:
    """Return whether a statement lets letters be printed in either case.

    Rows that made it: 24 of taco_stdin, 2 of taco_special_judge, 14 of code_contests_test;
    taco_stdin 18 says "You can choose the case (lower or upper) for each letter arbitrary".
    """
    for sentence in re.split(r"[.\n]", statement[:MAX_STATEMENT_CHARS].lower()):
        letters, printing = _found("letters", sentence), _found("printing", sentence)
        if letters and _found("free_case", sentence, letters.end()):
            return True
        if printing and _found("caseless", sentence, printing.end()):
            return True
        if _found("chosen_case", sentence):
            return True
    return False


def most_decimals(outputs: Iterable[str]) -> int:
    """Return the most decimals that a float among the expected outputs has."""
    parts = (token.partition(".")[2] for output in outputs for token in output.split())
    return max((len(decimals) for decimals in parts if decimals.isdigit()), default=0)


def printed_decimals(outputs: Iterable[str]) -> int | None:
    """Return to how many decimals all floats among the expected outputs were rounded, or None.

    All have that number of decimals: four or more, or one of them ends in a zero (3.00, but not
    3.0), since fewer may be the whole value.
    """
    parts = [token.partition(".") for output in outputs for token in output.split()]
    decimals = {text for _, point, text in parts if point and text.isdigit()}
    counts = set(map(len, decimals))
    if len(counts) != 1:
        return None
    (count,) = counts
    cut = count >= _MANY_DECIMALS or (count > 1 and any(text.endswith("0") for text in decimals))
    return count if cut else None


def _plain(statement: str) -> str:
    """Return the statement in lower case, without LaTeX's marks and typographic signs."""
    text = statement[:MAX_STATEMENT_CHARS].translate(_MINUS).lower()
    text = _SUPERSCRIPT.sub(lambda found: f"10^{found[1].translate(_FROM_SUPERSCRIPT)}", text)
    text = text.replace("&minus;", "-")
    return _LATEX.sub(lambda found: "*" if found[0] in _TIMES else "", text)


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences with single spaces; a paragraph or list item ends one too."""
    for sentence in _SENTENCE_END.split(text):
        yield " ".join(sentence.split())
