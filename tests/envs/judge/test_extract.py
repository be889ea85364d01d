"""Which program is taken from a response, over the shapes that models write."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from envs.judge.extract import (
    MAX_PARSED_CHARS,
    MAX_PROGRAM_CHARS,
    MAX_RESPONSE_CHARS,
    as_response,
    extract_program,
    fenced_blocks,
    is_program,
    parsed,
)
from tests.growth import growth, repeated

P = "print(int(input()) + 1)"
SHAPES = yaml.safe_load((Path(__file__).parent / "data" / "responses.yaml").read_text())


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name):
    assert extract_program(SHAPES[name]["response"]) == SHAPES[name]["program"]


def test_a_text_too_long_to_parse_is_no_program_but_a_long_block_is():
    long = "x = 1\n" * (MAX_PARSED_CHARS // 6 + 1)
    assert extract_program(long) is None
    assert extract_program(f"```python\n{long}\n```") == long
    assert extract_program("```python\n" + "#" * (MAX_PROGRAM_CHARS + 1) + "\n```") is None
    padding = " " * (MAX_RESPONSE_CHARS - len(as_response(P)))
    assert extract_program(padding + as_response(P)) == P
    assert extract_program(padding + as_response(P) + "\n") is None


HOSTILE = yaml.safe_load((Path(__file__).parent / "data" / "hostile.yaml").read_text())


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("start", ["", "```python\n", "~~~"])
def test_a_hostile_response_costs_in_proportion_to_its_length(name, start):
    for end in ("", "`x", "\n```"):
        assert growth(extract_program, repeated(HOSTILE[name], start, end), 400_000) < 3


PIECES = ["`", "```", "~~~", "python", " ", "\t", ">", "\r", "\n", "\n", "'''", '"""', "x = 1", "#"]
PIECES += ["<|im_end|>", "[PYTHON]"]


def test_a_program_is_written_as_prompts_ask_for_it():
    assert as_response(P) == f"```python\n{P}\n```"
    fenced = f"'''\n  ```\n'''\n{P}"
    assert as_response(fenced) == f"````python\n{fenced}\n````"


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text())
@example("if 1:\r\n\tx\n\n")
@example("x = '''\n```python\nprint(1)\n```\n'''")
@example("print 1")
def test_a_program_survives_as_a_response(program):
    assume(program.strip())
    before, token, _ = program.partition("<|im_end|>")
    assume(not token or parsed(program) or not parsed(before))
    assert extract_program(as_response(program)) == program


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
