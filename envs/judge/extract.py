"""Extract the program from a response.

The first rule that applies decides:
1. the last fenced block labelled Python;
2. the content of the last [PYTHON] tag;
3. the last fenced block of any label that is a program (an unlabelled one may show an output);
4. the last fenced block;
5. the whole text, if it parses as Python 3.

A text that parses with fences in it is a program whose strings contain them. An end token left in
the text ends the program.

Fenced blocks follow CommonMark, extended by habits of models: text before an opening fence labelled
Python, code on the line of the opening fence, a fence opened and closed on one line, an end token
after a closing fence, a fence inside a docstring of the program, and a last fence that is never
closed. The time is linear in the length of any text.
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_RESPONSE_CHARS = 1_000_000  # longer responses count as having no program
MAX_PROGRAM_CHARS = 500_000  # longer than any contest accepts
MAX_BLOCKS_PARSED = 32  # the last ones, if none is labelled Python
MAX_PARSED_CHARS = 65_536  # the parser needs up to a kilobyte of memory per character
MAX_REPAIRS = 32  # texts parsed per response to find where a block begins or ends

END_TOKEN = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|end_of_text|end|eos)\|>|</s>|<eos>|<end_of_turn>"
    r"|<｜end▁of▁sentence｜>"
)
CLOSING_FENCE = re.compile(rf"[ \t>]*+(`{{3,}}+|~{{3,}}+)[ \t\r]*+(?:(?:{END_TOKEN.pattern}).*+)?+")
_OPEN = re.compile(r"([ \t>]*+)(`{3,}+|~{3,}+)[ \t]*+([^`]*+)")
_OPEN_AFTER_TEXT = re.compile(r"(?<!`)(`{3,}+)[ \t]*+(?:python|py)[\d.]*+[ \t]*+$", re.IGNORECASE)
_BACKTICKS = re.compile(r"`{3,}+")
_PYTHON = re.compile(r"\W*(?:python|py|pypy)[\d.]*(?![\w+-])", re.IGNORECASE)
_TAG = re.compile(r"^[ \t>]*+\[PYTHON\]", re.MULTILINE)
_CLOSING_TAG = "[/PYTHON]"
_ACTS = (ast.Call, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def extract_program(response: str) -> str | None:
    """Return the program in `response`, or None. The module's docstring lists the rules."""
    if len(response) > MAX_RESPONSE_CHARS:
        return None
    blocks = [block for block in fenced_blocks(response) if block.text.strip()]
    if blocks and "~~~" not in response and is_program(response):  # ~~~python is an expression
        program: str | None = response
    else:
        program = _select(response, blocks)
    return program if program is not None and len(program) <= MAX_PROGRAM_CHARS else None


def as_response(program: str) -> str:
    """Return the response in the prompted format from which `extract_program` gets `program`.

    It is a ```python block, with a longer fence only if a line of the program is itself a fence.
    Exception: if only an end token keeps the program from parsing, the part before it is extracted.
    """
    lines = program.split("\n")
    fences = [match[1] for line in lines if (match := CLOSING_FENCE.fullmatch(line))]
    fence = "`" * max(3, 1 + max((fence.count("`") for fence in fences), default=0))
    return f"{fence}python\n{program}\n{fence}"


def _select(response: str, blocks: list[Block]) -> str | None:
    if python := [block.text for block in blocks if block.is_python]:
        return _without_end_token(python[-1])
    if tags := list(_TAG.finditer(response)):
        inside = response[tags[-1].end() :].partition(_CLOSING_TAG)[0]
        fenced = [block for block in fenced_blocks(inside) if block.text.strip()]
        return _without_end_token(_last_program(fenced) if fenced else inside)
    if blocks:
        return _without_end_token(_last_program(blocks))
    bare = _without_end_token(response)
    return bare if parsed(bare) else None


def _last_program(blocks: list[Block]) -> str:
    """Return the last block that is a program, else the last block."""
    last = [block.text for block in blocks[-MAX_BLOCKS_PARSED:]]
    return next((text for text in reversed(last) if is_program(text)), last[-1])


def _without_end_token(program: str) -> str:
    """Cut the text at the first chat-template end token if only that makes it parse."""
    token = END_TOKEN.search(program)
    if token is None or parsed(program):
        return program
    before = program[: token.start()]
    return before if parsed(before) else program


# ---- fenced blocks ----


@dataclass(frozen=True, slots=True)
class Block:
    """The text between two fences, and whether the opening fence is labelled Python."""

    text: str
    is_python: bool


@dataclass(frozen=True, slots=True)
class _Opening:
    margin: str  # text before the fence, stripped from the block's lines too
    fence: str
    is_python: bool
    code: str = ""  # after fence and label: attributes, or the program's first line


def fenced_blocks(text: str) -> list[Block]:
    """Return all fenced blocks in order, including empty ones."""
    return _Reader(text).blocks()


class _Runs:
    """Run lengths of one fence character, one for each line that has a fence; 0 for none."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths
        self.longest = [*itertools.accumulate(reversed(lengths), max)][::-1]  # suffix maxima

    def first(self, start: int, length: int) -> int | None:
        """Return the index, from `start` on, of the first run of at least this length, or None.

        The suffix maxima answer None without a search, so a reader that continues behind each
        result visits every line once.
        """
        if start >= len(self.lengths) or self.longest[start] < length:
            return None
        return next(i for i in range(start, len(self.lengths)) if self.lengths[i] >= length)


class _Reader:
    """Reads the lines that contain a fence. Indices count only these lines."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.fence_lines = [
            i for i, line in enumerate(self.lines) if "```" in line or "~~~" in line
        ]
        fenced = [self.lines[i] for i in self.fence_lines]
        closing = [match[1] if (match := CLOSING_FENCE.fullmatch(line)) else "" for line in fenced]
        ending = [line.rstrip() for line in fenced]
        self.closing = {c: _Runs([run.count(c) for run in closing]) for c in "`~"}
        self.ending = {c: _Runs([len(s) - len(s.rstrip(c)) for s in ending]) for c in "`~"}
        self.repairs = MAX_REPAIRS

    def blocks(self) -> list[Block]:
        blocks: list[Block] = []
        here = 0
        while here < len(self.fence_lines):
            line = self.lines[self.fence_lines[here]].rstrip("\r")
            opening = _opening(line)
            if opening is None:
                blocks.extend(_one_line_blocks(line))
                here += 1
            else:
                text, here = self._body(opening, here)
                blocks.append(Block(self._with_code(opening.code, text), opening.is_python))
        return blocks

    def _body(self, opening: _Opening, here: int) -> tuple[str, int]:
        """Return (text of the block that opens here, index at which to continue).

        If no line closes the fence, the body ends at the first line that ends with the fence, else
        at the end of the response.
        """
        start, char, length = self.fence_lines[here] + 1, opening.fence[0], len(opening.fence)
        end = self.closing[char].first(here + 1, length)
        if end is not None:
            return self._closed(opening, start, end)
        end = self.ending[char].first(here + 1, length)
        if end is None:
            return _joined(self.lines[start:], opening.margin), len(self.fence_lines)
        last = self.lines[self.fence_lines[end]].rstrip().removesuffix(opening.fence)
        return _joined([*self.lines[start : self.fence_lines[end]], last], opening.margin), end + 1

    def _closed(self, opening: _Opening, start: int, end: int) -> tuple[str, int]:
        """Return the body up to the closing fence, or a later one if that is in a docstring."""
        text = shorter = _joined(self.lines[start : self.fence_lines[end]], opening.margin)
        further = end
        while self.repairs and any(shorter.count(quotes) % 2 for quotes in ("'''", '"""')):
            self.repairs -= 1
            if parsed(text):
                return text, further + 1
            later = self.closing[opening.fence[0]].first(further + 1, len(opening.fence))
            if later is None:
                break
            further = later
            text = _joined(self.lines[start : self.fence_lines[further]], opening.margin)
        return shorter, end + 1

    def _with_code(self, code: str, text: str) -> str:
        """Prepend the code on the opening fence's line if that makes the block a program."""
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
    """Return the lines as one text, each without its part of the margin."""
    width = len(margin)
    return "\n".join(line[:width].lstrip(" \t>") + line[width:] for line in lines)


def _one_line_blocks(line: str) -> Iterator[Block]:
    """Yield the texts between two runs of equally many backticks."""
    runs = list(_BACKTICKS.finditer(line))
    following: dict[int, int] = {}  # length → index of the next run of this length
    closing: list[int | None] = [None] * len(runs)
    for i in range(len(runs) - 1, -1, -1):
        length = len(runs[i][0])
        closing[i], following[length] = following.get(length), i
    i = 0
    while i < len(runs):
        end = closing[i]
        if end is not None:
            inner = line[runs[i].end() : runs[end].start()]
            named = _PYTHON.match(inner)
            text = inner[named.end() :] if named else inner
            yield Block(text.strip(), named is not None)
        i = i + 1 if end is None else end + 1


# ---- texts that may be programs ----


def parsed(text: str) -> ast.Module | None:
    """Parse a Python 3 module of at least one statement. None if invalid or too long."""
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
    """Return whether anything is called, defined or imported, unlike in `3`, `YES` or `[1, 2]`."""
    return any(isinstance(node, _ACTS) for node in ast.walk(tree))


def is_program(text: str) -> bool:
    """Return whether the text parses and does something."""
    tree = parsed(text)
    return tree is not None and acts(tree)
