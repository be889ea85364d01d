"""What a statement says about how an answer is compared: tolerance, rounding, digits, case.

Each rule names the rows of the data sets that made it (`docs/reference/judging.md` lists what the
rules change). Statements are cut into sentences first, and every expression is searched in one
sentence at a time, so that the time is proportional to the length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_STATEMENT_CHARS = 100_000
MAX_TOLERANCE = 0.1
_MANY_DECIMALS = 4

_MINUS = str.maketrans(dict.fromkeys("−–—‒‐‑﹣－", "-") | dict.fromkeys("×·⋅∙", "*") | {"＾": "^"})
_SUPERSCRIPT = re.compile("10[ ]?([⁻⁰¹²³⁴-⁹]{2,4})")
_FROM_SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_LATEX = re.compile(r"\\(?:times|cdot)\b|\\(?:text|mathrm|rm)\b|\\[,;: !]|[${}`]|</?su[bp]>")
_TIMES = (r"\times", r"\cdot")
# A period within a number, as in 0.01, ends no sentence.
_SENTENCE_END = re.compile(r"[.!?](?=[\s)\"'”]|$)|\n\s*\n|\n\s*[-*•]\s|;")

# 10^-6, 10 - 6 (its superscript was lost), 5*10^-4, 1e-9, 0.001
_SMALL_NUMBER = re.compile(
    r"(?<![\w.^])(?:(?P<factor>\d{1,3}(?:\.\d{1,3})?)\s?\*\s?)?10\s?(?:\^|\*\*)?\s?\(?\s?-\s?"
    r"(?P<power>\d{1,2})(?![\w.]?\d|\s?[=+*/-])"
    r"|(?<![\w.^])(?P<mantissa>\d{1,3}(?:\.\d{1,3})?)e\s?-\s?(?P<exponent>\d{1,2})(?!\d)"
    r"|(?<![\w.^])(?P<decimal>0?\.\d{1,15})(?![\w.]?\d)"
)
_ERROR = re.compile(  # also |a - b|, as in "correct if |a - b| / max(1, |b|) <= 10^-6"
    r"\berrors?\b|\baccura|\bprecis|\btoleran|\bnoggrannhet|\b(?:fel|felet)\b"
    r"|\|\s?\w{1,6}\s?-\s?\w{1,6}\s?\|"
)
_DISTANCE = re.compile(
    r"\bdiffer|\bdeviat|\bwithin\b|\boff by\b|\baway from\b|\bcorrect (?:up )?to\b|\binom\b"
)
_ANSWER = re.compile(
    r"\banswer|\boutput|\bprint|\bresult|\bcorrect|\baccepted\b|\bjury|\bjudge|\bsolution|\bexpected\b"
    r"|\brelative\b|\babsolute (?:or relative )?error|\bsvar|\bdisplay|\breport|\bvalid\b"
)
_ABOUT_THE_INPUT = re.compile(r"\binputs?\b|\bgiven (?:with|to|up)\b|\bguarante|\bassum")


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
    error, distance = _ERROR.search(sentence), _DISTANCE.search(sentence)
    if not (error or distance) or not _ANSWER.search(sentence):
        return None
    if _ABOUT_THE_INPUT.search(sentence) and "error" not in sentence:
        return None
    numbers = [_value(match) for match in _SMALL_NUMBER.finditer(sentence)]
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


_ROUND = re.compile(r"\bround(?:ed|ing)?\b|\bexactly\b")
_COUNTS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_DECIMALS = re.compile(
    r"\b(?P<count>\d{1,2}|zero|one|two|three|four|five|six)[\s-]?(?:decimal|digits?\b|places?\b)"
)
_AFTER_POINT = re.compile(r"\bdecimal|\bafter the (?:floating )?point\b|\bfraction")
_NO_ROUNDING = re.compile(r"\b(?:not|without|rounded? (?:down|up)|rounding error)\b|n't\b")


def rounded_decimals(statement: str) -> int | None:
    """Return how many decimals an answer must be rounded to, or None.

    "rounded to two digits after the decimal point", "with exactly 3 decimals". Row that made it:
    taco_stdin 46, where 4.3300009 was accepted for 4.33.
    """
    for sentence in _sentences(_plain(statement)):
        if not _ROUND.search(sentence) or not _AFTER_POINT.search(sentence):
            continue
        count = _DECIMALS.search(sentence)
        about_input = _ABOUT_THE_INPUT.search(sentence) or not _ANSWER_OR_VALUE.search(sentence)
        if count and not about_input and not _NO_ROUNDING.search(sentence):
            text = count["count"]
            return _COUNTS[text] if text in _COUNTS else int(text)
    return None


_ANSWER_OR_VALUE = re.compile(
    r"\banswer|\boutput|\bprint|\bresult|\bvalue|\bdisplay|\breport|\bround"
)

_PRINTING = re.compile(r"\b(?:print|output|displayed|answer|write|report)")
_DIGIT_TEXT = re.compile(
    r"\bleading zero|\bzero-padded\b|\bpadded with (?:leading )?zero|\b\d{1,2}-digit\b"
    r"|\bexactly (?:\w{1,10}|\$\w\$) (?:digits|bits|binary digits)\b"
    r"|\bbinary (?:string|representation|notation)|\bstring (?:\w{1,10} )?of length\b"
    r"|\bstring (?:\w{1,10} )?consisting of\b"
)


def asks_for_digits(statement: str) -> bool:
    """Return whether a statement asks for digits as a text: 00101 is not 101 then.

    "without extra leading zeros", "a 4-digit number", "a string of length n", where it says what to
    print. Rows that made it: taco_stdin 182, 397, code_contests_test 66.
    """
    for sentence in _sentences(_plain(statement)):
        printing = _PRINTING.search(sentence)
        if printing and _DIGIT_TEXT.search(sentence, printing.end()):
            return True
    return False


_LETTERS = re.compile(
    r"\b(?:letters?|characters?|strings?|print|printed|output|displayed|answer|yes|no)\b"
)
_FREE_CASE = re.compile(
    r"\b(?:any|arbitrary|either) (?:letter )?(?:case|register)\b"
    r"|\b(?:either|in) (?:the )?(?:upper|lower)-?\s?case or "
)
_CHOSEN_CASE = re.compile(r"\bcase\b[^.]{0,40}\b(?:for|of) each (?:letter|character)")
_CASELESS = re.compile(r"\bcase[- ]insensitiv")


def allows_any_case(statement: str) -> bool:
    """Return whether a statement lets letters be printed in either case.

    Rows that made it: 24 of taco_stdin, 2 of taco_special_judge, 14 of code_contests_test;
    taco_stdin 18 says "You can choose the case (lower or upper) for each letter arbitrary".
    """
    for sentence in re.split(r"[.\n]", statement[:MAX_STATEMENT_CHARS].lower()):
        letters, printing = _LETTERS.search(sentence), _PRINTING.search(sentence)
        if letters and _FREE_CASE.search(sentence, letters.end()):
            return True
        if printing and _CASELESS.search(sentence, printing.end()):
            return True
        if _CHOSEN_CASE.search(sentence):
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
