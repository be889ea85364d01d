"""Which program a response contains.

The last fenced block that names Python; else what stands in the last [PYTHON] tags; else the last
fenced block of any kind that is a program, since an unlabelled one may show an output; else the
last block; else the whole text, if it parses as Python 3. A text that parses with fences in it is a
program whose strings hold them. An end token that was left in ends the program.
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

MAX_RESPONSE_CHARS = 1_000_000  # a longer response holds no program: none is read to its end
MAX_PROGRAM_CHARS = 500_000  # no contest takes a longer source
MAX_BLOCKS_PARSED = 32  # the last ones, where none names Python

_TAG = re.compile(r"^[ \t>]*+\[PYTHON\]", re.MULTILINE)
_CLOSING_TAG = "[/PYTHON]"


def extract_program(response: str) -> str | None:
    """The program in `response`, or None where there is none. See the module's first lines."""
    if len(response) > MAX_RESPONSE_CHARS:
        return None
    blocks = [block for block in fenced_blocks(response) if block.text.strip()]
    if blocks and "~~~" not in response and is_program(response):  # ~~~python is an expression
        program = response
    else:
        program = _chosen(response, blocks)
    return program if program is not None and len(program) <= MAX_PROGRAM_CHARS else None


def as_response(program: str) -> str:
    """The response that prompts ask for, from which `extract_program` takes exactly `program`.

    A ```python block; its fence is longer than three only where a line of the program is a fence.
    Of a program that only an end token keeps from being Python, the part before it is taken.
    """
    lines = program.split("\n")
    fences = [found[1] for line in lines if (found := CLOSING_FENCE.fullmatch(line))]
    fence = "`" * max(3, 1 + max((fence.count("`") for fence in fences), default=0))
    return f"{fence}python\n{program}\n{fence}"


def _chosen(response: str, blocks: list[Block]) -> str | None:
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
    """The last block that is a program, else the last block."""
    last = [block.text for block in blocks[-MAX_BLOCKS_PARSED:]]
    return next((text for text in reversed(last) if is_program(text)), last[-1])


def _without_end_token(program: str) -> str:
    """The text before the first end token of a chat template, if only that makes it Python."""
    token = END_TOKEN.search(program)
    if token is None or parsed(program):
        return program
    before = program[: token.start()]
    return before if parsed(before) else program
