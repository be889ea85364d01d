"""Which program is taken from a response, over the shapes that models write."""

import time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from envs.judge.extract import (
    MAX_PARSED_CHARS,
    MAX_PROGRAM_CHARS,
    MAX_RESPONSE_CHARS,
    as_response,
    extract_program,
    parsed,
)
from tests.growth import growth, repeated
from tests.selection import all_but_slow

P = "print(int(input()) + 1)"
Q = "print(0)"
FENCED = f"def f():\n    '''\n    ```\n    f()\n    ```\n    '''\n{P}"
LABELLED = FENCED.replace("```\n    f", "```python\n    f")

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
    "unlabelled, then its output": (f"```\n{P}\n```\nOutput:\n```\n3\n```", P),
    "unlabelled, then an output that is a list": (f"```\n{P}\n```\n```\n[1, 2]\n```", P),
    "unlabelled, then an output in text": (f"```\n{P}\n```\n```output\nYES\n```", P),
    "unlabelled blocks that are no program": ("```\n1\n```\n```\n2\n```", "2"),
    "tags": (f"Here it is:\n[PYTHON]\n{P}\n[/PYTHON]\nDone.", f"\n{P}\n"),
    "tags on one line": (f"[PYTHON]{P}[/PYTHON]", P),
    "tags never closed": (f"[PYTHON]\n{P}\n", f"\n{P}\n"),
    "the last of two tags": (f"[PYTHON]\n{Q}\n[/PYTHON]\n[PYTHON]\n{P}\n[/PYTHON]", f"\n{P}\n"),
    "a fence in tags": (f"[PYTHON]\n```\n{P}\n```\n[/PYTHON]", P),
    "tags, then their output": (f"[PYTHON]\n{P}\n[/PYTHON]\nOutput:\n```\n3\n```", f"\n{P}\n"),
    "tags in prose": ("I shall write [PYTHON] tags.", None),
    "code on the line of the fence": (f"```python {P}\n```", f"{P}\n"),
    "code from the line of the fence on": (
        f"```python import sys\n{P}\n```",
        f"import sys\n{P}",
    ),
    "code on the line of a fence without language": (f"```{P}\n```", f"{P}\n"),
    "a number of lines is no code": (f"```python lines=3\n{P}\n```", P),
    "one line, then its output": (f"```{P}``` Output: ```3```", P),
    "an end token in the block": (f"```python\n{P}<|im_end|>\n```", P),
    "an end token in a block never closed": (f"```python\n{P}\n<|eot_id|>", f"{P}\n"),
    "an end token after the fence": (f"```python\n{P}\n```<|endoftext|>", P),
    "an end token and another turn": (f"```python\n{P}\n```</s>\n<s> I mean ```3```", P),
    "an end token after a bare program": (f"{P}</s>", P),
    "an end token in tags": (f"[PYTHON]{P}<|eot_id|>", P),
    "an end token in a string": (f"```python\ns = '</s>'\n{P}\n```", f"s = '</s>'\n{P}"),
    "a fence in a docstring": (f"```python\n{FENCED}\n```\nDone.", FENCED),
    "a labelled fence in a docstring": (f"```python\n{LABELLED}\n```\nDone.", LABELLED),
    "a fence in a docstring, then a better program": (
        f"```python\n{LABELLED}\n```\nBetter:\n```python\n{Q}\n```",
        Q,
    ),
    "a fence in the docstring of a bare program": (LABELLED, LABELLED),
    "a docstring never closed": (f"```python\n'''x\n```\nOr:\n```python\n{P}\n```", P),
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


def test_a_text_too_long_to_parse_is_no_program_but_a_long_block_is():
    long = "x = 1\n" * (MAX_PARSED_CHARS // 6 + 1)
    assert extract_program(long) is None
    assert extract_program(f"```python\n{long}\n```") == long
    assert extract_program("```python\n" + "#" * (MAX_PROGRAM_CHARS + 1) + "\n```") is None
    padding = " " * (MAX_RESPONSE_CHARS - len(as_response(P)))
    assert extract_program(padding + as_response(P)) == P
    assert extract_program(padding + as_response(P) + "\n") is None


HOSTILE = {  # text that is repeated
    "fences": "```python\n",
    "fences of both kinds": "```\n~~~\n",
    "fences at the ends of lines": "```python\nx```\nx~~~\n",
    "closed fences": "```python\nx\n```\n",
    "docstrings that never close": "```python\n'''\n```\n\"\"\"\n",
    "code on fences": "```x()\n```\n",
    "unlabelled blocks": "```\n1\n```\n",
    "backticks": "`",
    "tildes": "~",
    "runs of backticks": "``` ",
    "blanks": " ",
    "margins": "> \t",
    "lines": "\n",
    "languages": "```python1.1.",
    "dots": ".",
    "tags": "[PYTHON]\n",
    "tags and fences": "[PYTHON]\n```\n",
    "end tokens": "<|im_end|>",
    "end tokens after fences": "```python\n```</s>\n",
    "triple quotes": "'''",
    "parentheses": "(",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_response_costs_the_host_little(name):
    text = HOSTILE[name] * (15_000 // len(HOSTILE[name]))
    started = time.process_time()
    for start in ("", "```", "```python\n", "~~~"):
        for end in ("", "`x", "```python", "\n```", "\n'''\n```"):
            extract_program(start + text + end)
    assert time.process_time() - started < 1.5


# Slow: other fences go through the same passes as the labelled one.
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "start", all_but_slow(["", "```", "```python\n", "~~~"], slow=["```", "~~~"])
)
def test_a_hostile_response_costs_in_proportion_to_its_length(name, start):
    for end in ("", "`x", "\n```"):
        assert growth(extract_program, repeated(HOSTILE[name], start, end), 400_000) < 3


PIECES = (
    "`",
    "```",
    "~~~",
    "python",
    " ",
    "\t",
    ">",
    "\r",
    "\n",
    "\n",
    "'''",
    '"""',
    "x = 1",
    "#",
    "<|im_end|>",
    "[PYTHON]",
)


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
