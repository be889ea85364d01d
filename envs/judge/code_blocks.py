"""Fenced blocks of a response: CommonMark, widened by what models write.

Text before an opening fence that names Python; code on the line of the opening fence; a fence that
is opened and closed on one line; an end token after a closing fence; a fence inside a docstring of
the program; a last fence that never closes. The time is linear in the text, whatever stands in it.
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

END_TOKEN = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|end_of_text|end|eos)\|>|</s>|<eos>|<end_of_turn>"
    r"|<｜end▁of▁sentence｜>"
)
CLOSING_FENCE = re.compile(rf"[ \t>]*+(`{{3,}}+|~{{3,}}+)[ \t\r]*+(?:(?:{END_TOKEN.pattern}).*+)?+")
MAX_REPAIRS = 32  # texts of one response that are parsed to tell where a block begins or ends

_OPEN = re.compile(r"([ \t>]*+)(`{3,}+|~{3,}+)[ \t]*+([^`]*+)")
_OPEN_AFTER_TEXT = re.compile(r"(?<!`)(`{3,}+)[ \t]*+(?:python|py)[\d.]*+[ \t]*+$", re.IGNORECASE)
_BACKTICKS = re.compile(r"`{3,}+")
_PYTHON = re.compile(r"\W*(?:python|py|pypy)[\d.]*(?![\w+-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences, and whether the first one names Python."""

    text: str
    is_python: bool


@dataclass(frozen=True, slots=True)
class _Opening:
    margin: str  # before the fence; it is stripped from the block's lines
    fence: str
    is_python: bool
    code: str = ""  # after the fence and the language: attributes, or the program's first line


def fenced_blocks(text: str) -> list[Block]:
    """All fenced blocks in order, empty ones too."""
    return _Reader(text).blocks()


class _Runs:
    """Lengths of one fence character's runs, one for each line; 0 where a line has none."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths
        self.longest = [*itertools.accumulate(reversed(lengths), max)][::-1]  # from here on

    def first(self, start: int, length: int) -> int | None:
        """Where from `start` the first run at least so long stands. If none does, it looks at none:
        a reader that goes on behind what it finds passes each line once.
        """
        if start >= len(self.lengths) or self.longest[start] < length:
            return None
        return next(at for at in range(start, len(self.lengths)) if self.lengths[at] >= length)


class _Reader:
    """Goes over the lines that hold a fence; they are counted by their place among such lines."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = [i for i, line in enumerate(self.lines) if "```" in line or "~~~" in line]
        fenced = [self.lines[i] for i in self.at]
        closing = [match[1] if (match := CLOSING_FENCE.fullmatch(line)) else "" for line in fenced]
        ending = [line.rstrip() for line in fenced]
        self.closing = {c: _Runs([run.count(c) for run in closing]) for c in "`~"}
        self.ending = {c: _Runs([len(s) - len(s.rstrip(c)) for s in ending]) for c in "`~"}
        self.repairs = MAX_REPAIRS

    def blocks(self) -> list[Block]:
        blocks: list[Block] = []
        here = 0
        while here < len(self.at):
            line = self.lines[self.at[here]].rstrip("\r")
            opening = _opening(line)
            if opening is None:
                blocks.extend(_one_line_blocks(line))
                here += 1
            else:
                text, here = self._body(opening, here)
                blocks.append(Block(self._with_code(opening.code, text), opening.is_python))
        return blocks

    def _body(self, opening: _Opening, here: int) -> tuple[str, int]:
        """(the text of the block that opens here, where to go on).

        Where no line closes the fence, the body runs to the first line that ends with it, else to
        the end of the response.
        """
        start, char, length = self.at[here] + 1, opening.fence[0], len(opening.fence)
        end = self.closing[char].first(here + 1, length)
        if end is not None:
            return self._closed(opening, start, end)
        end = self.ending[char].first(here + 1, length)
        if end is None:
            return _joined(self.lines[start:], opening.margin), len(self.at)
        last = self.lines[self.at[end]].rstrip().removesuffix(opening.fence)
        return _joined([*self.lines[start : self.at[end]], last], opening.margin), end + 1

    def _closed(self, opening: _Opening, start: int, end: int) -> tuple[str, int]:
        """The body to the closing fence; to a later one if this one stands in a docstring."""
        text = shorter = _joined(self.lines[start : self.at[end]], opening.margin)
        further = end
        while self.repairs and any(shorter.count(quotes) % 2 for quotes in ("'''", '"""')):
            self.repairs -= 1
            if parsed(text):
                return text, further + 1
            further = self.closing[opening.fence[0]].first(further + 1, len(opening.fence))
            if further is None:
                break
            text = _joined(self.lines[start : self.at[further]], opening.margin)
        return shorter, end + 1

    def _with_code(self, code: str, text: str) -> str:
        """The block and what stands on the line of its fence, if that begins a program."""
        if not code.strip() or not self.repairs:
            return text
        self.repairs -= 1
        whole = f"{code.strip()}\n{text}"
        tree = parsed(whole)
        return whole if tree and acts(tree.body[0]) else text


def _opening(line: str) -> _Opening | None:
    if match := _OPEN.fullmatch(line):
        margin, fence, info = match.groups()
        named = _PYTHON.match(info)
        return _Opening(margin, fence, named is not None, info[named.end() :] if named else info)
    if match := _OPEN_AFTER_TEXT.search(line):
        return _Opening("", match[1], True)
    return None


def _joined(lines: Sequence[str], margin: str) -> str:
    return (
        "\n".join(_without_margin(line, margin) for line in lines) if margin else "\n".join(lines)
    )


def _without_margin(line: str, margin: str) -> str:
    shared = 0
    while shared < min(len(margin), len(line)) and line[shared] in " \t>":
        shared += 1
    return line[shared:]


def _one_line_blocks(line: str) -> Iterator[Block]:
    """What stands between two runs of as many backticks."""
    runs = list(_BACKTICKS.finditer(line))
    following: dict[int, int] = {}  # length → where the next run of it stands
    closing: list[int | None] = [None] * len(runs)
    for at in range(len(runs) - 1, -1, -1):
        length = len(runs[at][0])
        closing[at], following[length] = following.get(length), at
    at = 0
    while at < len(runs):
        end = closing[at]
        if end is not None:
            inner = line[runs[at].end() : runs[end].start()]
            named = _PYTHON.match(inner)
            text = inner[named.end() :] if named else inner
            yield Block(text.strip(), named is not None)
        at = at + 1 if end is None else end + 1


# What the host asks Python's own parser about a text that may be a program.


MAX_PARSED_CHARS = 65_536  # the host's parser needs up to a kilobyte for each character

_ACTS = (ast.Call, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def parsed(text: str) -> ast.Module | None:
    """The text as a Python 3 module of at least one statement; None if it is none, or too long."""
    if len(text) > MAX_PARSED_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return tree if tree.body else None


def acts(tree: ast.AST) -> bool:
    """Whether anything is called, defined or imported: `3`, `YES` and `[1, 2]` are Python too."""
    return any(isinstance(node, _ACTS) for node in ast.walk(tree))


def is_program(text: str) -> bool:
    """Whether the text parses, and acts."""
    tree = parsed(text)
    return tree is not None and acts(tree)
