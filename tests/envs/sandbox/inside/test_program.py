"""The header of a program: what the server works out so that test processes need not."""

import os
import re

import pytest

from envs.sandbox.base import Job, Limits
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
from envs.sandbox.inside.program import ON_DEMAND, program_header, read_program_header
from tests.growth import growth, repeated

LIMITS = {"cpu_s": 1.5, "wall_s": 4.0, "memory_mb": 256, "output_mb": 4, "fn_name": None}
PAGES = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"


def header_of(text, **limits):
    file = os.memfd_create("program")
    os.write(file, program_header(LIMITS | limits, text.encode("utf-8", "surrogatepass")))
    header = read_program_header(file)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)
    return header


@pytest.mark.parametrize("text", ["", "print('é')\r\n", "x = '\ud800'", "a\0b", "x\n" * 100_000])
def test_the_text_and_the_limits_come_through_as_they_were(text):
    header = header_of(text, fn_name="solve")
    assert header["source"] == text
    assert {name: header[name] for name in LIMITS} == LIMITS | {"fn_name": "solve"}
    assert header_of("\ufeff" + text)["source"] == text


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import numpy as np, random", ("numpy", "random")),
        ("from random import*\nimport copy", ("copy", "random")),
        ("randomize = deepcopy = xcopy = numpy_ = 1", ()),
        ("x = 'numpy.random'", ("numpy", "random")),
        ("étyping = typingé = 1", ()),
    ],
)
def test_named_modules_are_whole_words_in_one_order(text, modules):
    assert header_of(text)["modules"] == modules
    words = set(re.findall(r"\w+", text))
    assert modules == tuple(name for name in ON_DEMAND if name in words)


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("print(1)", set()),
        ("from concurrent.futures import ThreadPoolExecutor", {"threads"}),
        ("import ctypes", {"may_notice", "names_ctypes"}),
        ("open(1, 'w')", {"may_notice"}),
    ],
)
def test_what_a_text_may_do_is_header_of(text, true):
    header = header_of(text)
    assert {name for name in ("threads", "may_notice", "names_ctypes") if header[name]} == true


@pytest.mark.parametrize("unit", ["a", "_.", "numpy ", "__del", "getatt", "randomrandom", "é\n"])
def test_a_text_costs_by_its_length(unit):
    """The server reads it, while the programs to come wait."""
    assert growth(lambda text: program_header(LIMITS, text.encode()), repeated(unit), 1_000_000) < 3


@pytest.mark.parametrize("form", ["namespaces", "landlock"])
def test_a_first_test_copies_few_pages_more_than_a_further_one(form):
    """It compiles its program besides. With JSON and searches in it, some 1.9 times as many."""
    if reason := form_unavailable(form):
        pytest.skip(f"this machine has no {form}: {reason}")
    with EmbeddedSandbox(workers=1, form=form) as sandbox:
        ((_, executions),) = sandbox.run([Job(PAGES, ("", ""), Limits())], lambda *_: True)
    first, further = (int(execution.stdout) for execution in executions)
    assert first < 1.78 * further
