"""The blocks of a text, as CommonMark has them where models do. More in test_extract.py."""

import time

import pytest

from envs.judge.code_blocks import Block, fenced_blocks

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
