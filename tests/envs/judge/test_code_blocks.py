"""Fenced blocks of a text, and which texts are Python programs. More in test_extract.py."""

import time

import pytest

from envs.judge.extract import (
    MAX_PARSED_CHARS,
    Block,
    fenced_blocks,
    is_program,
    parsed,
)

TEXTS = {
    "in order, empty ones too": (
        "```python\na\n```\n~~~\n~~~\n```c\nb\n```",
        [Block("a", True), Block("", False), Block("b", False)],
    ),
    "a fence closes one of its own kind and at most its length": (
        "````\n```\n~~~~\n````\n~~~\n```\n~~~~~",
        [Block("```\n~~~~", False), Block("```", False)],
    ),
    "the fence of one line stands alone": (
        "`````py a````` and ```b````c```",
        [Block("a", True), Block("b````c", False)],
    ),
    "none": ("a `b` ``c``\n    d", []),
}


@pytest.mark.parametrize("name", TEXTS)
def test_blocks(name):
    text, blocks = TEXTS[name]
    assert fenced_blocks(text) == blocks


def test_fences_of_all_lengths_cost_little():
    for lengths in (range(3, 600), range(600, 3, -1)):
        text = "\n".join("`" * n + "python\nx" for n in lengths) + "\n```\n" * 20_000
        started = time.process_time()
        fenced_blocks(text)
        assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    ["(" * 30_000, "-" * 60_000 + "1", "x" + ".a" * 30_000 + "(", "[" * 5_000 + "]" * 5_000],
    ids=["parentheses", "signs", "attributes", "brackets"],
)
def test_nesting_that_breaks_the_parser_is_no_python(text):
    assert parsed(text) is None


@pytest.mark.parametrize(
    "text", ["", "# nothing", "print 1", "x\x00", "'\ud800", "1\n" * MAX_PARSED_CHARS]
)
def test_what_is_no_python_or_too_long(text):
    assert parsed(text) is None


@pytest.mark.parametrize("text", ["3", "YES", "[1, 2]", "x = 3", "Hello, world", "'print(1)'"])
def test_an_output_that_parses_is_no_program(text):
    assert parsed(text) and not is_program(text)


@pytest.mark.parametrize(
    "text", ["print(3)", "def f(x):\n    return x", "import this", "if 1: f()"]
)
def test_a_program_calls_or_defines_or_imports(text):
    assert is_program(text)
