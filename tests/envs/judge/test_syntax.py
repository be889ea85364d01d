"""What counts as Python, and as a program."""

import pytest

from envs.judge.code_blocks import MAX_PARSED_CHARS, is_program, parsed


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
