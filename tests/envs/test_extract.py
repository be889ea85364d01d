"""Which program is taken from a response, over the shapes that models write."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from envs.extract import MAX_PARSED_CHARS, MAX_PROGRAM_CHARS, as_response, extract_program

P = "print(int(input()) + 1)"
Q = "print(0)"

SHAPES = {
    "bare program": (P, P),
    "bare program with blank lines around": (f"\n\n{P}\n\n", f"\n\n{P}\n\n"),
    "one python block": (f"Here it is:\n```python\n{P}\n```\nDone.", P),
    "py": (f"```py\n{P}\n```", P),
    "python3": (f"```python3\n{P}\n```", P),
    "Python 3.11 in capitals": (f"```Python3.11\n{P}\n```", P),
    "space before the language": (f"``` python\n{P}\n```", P),
    "attributes": (f"```{{.python .numberLines}}\n{P}\n```", P),
    "title after the language": (f'```python title="a.py"\n{P}\n```', P),
    "no language": (f"```\n{P}\n```", P),
    "last of two python blocks": (f"```python\n{Q}\n```\nBetter:\n```python\n{P}\n```", P),
    "python block before an output block": (f"```python\n{P}\n```\nOutput:\n```\n3\n```", P),
    "python block before a C++ block": (f"```python\n{P}\n```\n```cpp\nint main(){{}}\n```", P),
    "no python block: the last of any kind": (f"```text\n1 2\n```\n```code\n{P}\n```", P),
    "a console transcript is no python block": (f"```python\n{P}\n```\n```pycon\n>>> 1\n```", P),
    "tildes": (f"~~~python\n{P}\n~~~", P),
    "longer fence around backticks": (
        f"````python\ns = '''\n```\n'''\n{P}\n````",
        f"s = '''\n```\n'''\n{P}",
    ),
    "never closed": (f"```python\n{P}\n", f"{P}\n"),
    "closed at the end of a line": (f"```python\n{P}```", P),
    "stray fence after the block": (f"```python\n{P}\n```\n```", P),
    "empty block after the block": (f"```python\n{P}\n```\n```python\n```", P),
    "indented in a list": (
        f"1. So:\n   ```python\n   if 1:\n       {P}\n   ```",
        f"if 1:\n    {P}",
    ),
    "quoted": (f"> ```python\n> {P}\n> ```", P),
    "text before the fence": (f"Answer: ```python\n{P}\n```", P),
    "one line with a language": (f"Use ```python {P}```.", P),
    "one line without": (f"```{P}```", P),
    "windows line ends": (f"```python\r\n{P}\r\n```\r\n", f"{P}\r"),
    "thoughts first": (f"<think>\n```python\n{Q}\n```\n</think>\n```python\n{P}\n```", P),
    "a broken program in a fence is still the program": ("```python\nprint((\n```", "print(("),
    "inline code is no fence": ("I would call `print(1)` here.", None),
    "prose": ("I cannot solve this problem, sorry.", None),
    "empty": ("", None),
    "blank": (" \n\t\n", None),
    "only a comment": ("# nothing to do\n", None),
    "only an empty fence, in prose": ("It is:\n```python\n```", None),
    "python 2": ("print 1", None),
    "null byte": ("print(1)\x00", None),
    "lone surrogate": ("print('\ud800') (", None),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name):
    response, expected = SHAPES[name]
    assert extract_program(response) == expected


@pytest.mark.parametrize(
    "text",
    ["(" * 30_000, "-" * 60_000 + "1", "x" + ".a" * 30_000 + "(", "[" * 5_000 + "]" * 5_000],
    ids=["parentheses", "signs", "attributes", "brackets"],
)
def test_nesting_that_breaks_the_parser_is_no_program(text):
    assert extract_program(text) is None


def test_a_text_too_long_to_parse_is_no_program_but_a_long_block_is():
    long = "x = 1\n" * (MAX_PARSED_CHARS // 6 + 1)
    assert extract_program(long) is None
    assert extract_program(f"```python\n{long}\n```") == long
    assert extract_program("```python\n" + "#" * (MAX_PROGRAM_CHARS + 1) + "\n```") is None


PIECES = ("`", "```", "~~~", "python", " ", "\t", ">", "\r", "\n", "\n", "'''", '"""', "x = 1", "#")


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
    assert extract_program(as_response(program)) == program
