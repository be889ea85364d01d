"""Extract the program from a response.

The first rule that applies decides:
1. the last fenced block labelled Python;
2. the content of the last [PYTHON] tag;
3. the last fenced block of any label that is a program (an unlabelled one may show an output);
4. the last fenced block;
5. the whole text, if it parses as Python 3.

A text that parses with fences in it is a program whose strings contain them. An end token left in
the text ends the program.
"""

from __future__ import annotations

import re

from envs.judge.code_blocks import (
    CLOSING_FENCE,
    END_TOKEN,
    Block,
    fenced_blocks,
    is_program,
    parsed,
)

MAX_RESPONSE_CHARS = 1_000_000  # longer responses count as having no program
MAX_PROGRAM_CHARS = 500_000  # longer than any contest accepts
MAX_BLOCKS_PARSED = 32  # the last ones, if none is labelled Python

_TAG = re.compile(r"^[ \t>]*+\[PYTHON\]", re.MULTILINE)
_CLOSING_TAG = "[/PYTHON]"


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
