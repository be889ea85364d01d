"""Which program a response contains.

The last fenced Python block; else the last fenced block of any kind; else the whole text, if it
parses as Python 3. Fences follow CommonMark, widened by what models write: text before an opening
fence that names Python, a fence opened and closed on one line, a last fence that never closes.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

MAX_PROGRAM_CHARS = 500_000  # no contest takes a longer source
MAX_PARSED_CHARS = 65_536  # the host's parser needs up to a kilobyte for each character

_OPEN = re.compile(r"^([ \t>]*)(`{3,}|~{3,})[ \t]*([^`]*)$")
_OPEN_AFTER_TEXT = re.compile(r"(`{3,})[ \t]*(python|py)[\d.]*[ \t]*$", re.IGNORECASE)
_ONE_LINE = re.compile(r"(`{3,})(?!`)(.+?)(?<!`)\1(?!`)")
_PYTHON = re.compile(r"^\W*(python|py|pypy)[\d.]*(?![\w+-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    is_python: bool


def extract_program(response: str) -> str | None:
    """The program in `response`, or None where there is none. See the module's first lines."""
    blocks = [block for block in _fenced_blocks(response) if block.text.strip()]
    chosen = [block for block in blocks if block.is_python] or blocks
    if chosen:
        program = chosen[-1].text
        return program if len(program) <= MAX_PROGRAM_CHARS else None
    return response if _parses(response) else None


def as_response(program: str) -> str:
    """The response that prompts ask for, from which `extract_program` takes exactly `program`.

    A ```python block; its fence is longer than three only where a line of the program is a fence.
    """
    fences = re.finditer(r"^[ \t>]*+(`{3,}+)[ \t\r]*+$", program, re.MULTILINE)
    longest = max((len(found[1]) for found in fences), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{program}\n{fence}"


def _fenced_blocks(response: str) -> list[_Block]:
    blocks: list[_Block] = []
    lines = response.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at].rstrip("\r")
        at += 1
        opening = _opening(line)
        if opening is None:
            blocks.extend(_one_line_blocks(line))
            continue
        margin, fence, is_python = opening
        body, at = _body(lines, at, fence)
        text = "\n".join(_without_margin(line, margin) for line in body)
        blocks.append(_Block(text, is_python))
    return blocks


def _opening(line: str) -> tuple[str, str, bool] | None:
    """(what stands before the fence and is stripped from its lines, the fence, names Python)."""
    if match := _OPEN.match(line):
        return match[1], match[2], _PYTHON.match(match[3]) is not None
    if match := _OPEN_AFTER_TEXT.search(line):
        return "", match[1], True
    return None


def _body(lines: list[str], start: int, fence: str) -> tuple[list[str], int]:
    """(the lines from `start` to the closing fence, where to go on).

    Where no line closes the fence, the body runs to the first line that ends with it, else to the
    end of the response.
    """
    closing = re.compile(rf"[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}[ \t\r]*")
    for at in range(start, len(lines)):
        if closing.fullmatch(lines[at]):
            return lines[start:at], at + 1
    for at in range(start, len(lines)):
        line = lines[at].rstrip()
        if line.endswith(fence):
            return [*lines[start:at], line.removesuffix(fence)], at + 1
    return lines[start:], len(lines)


def _without_margin(line: str, margin: str) -> str:
    if not margin:
        return line
    shared = 0
    while shared < min(len(margin), len(line)) and line[shared] in " \t>":
        shared += 1
    return line[shared:]


def _one_line_blocks(line: str) -> list[_Block]:
    blocks = []
    for match in _ONE_LINE.finditer(line):
        named = _PYTHON.match(match[2])
        text = match[2][named.end() :] if named else match[2]
        blocks.append(_Block(text.strip(), named is not None))
    return blocks


def _parses(text: str) -> bool:
    """Whether the text is a Python 3 module with at least one statement."""
    if len(text) > MAX_PARSED_CHARS:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
