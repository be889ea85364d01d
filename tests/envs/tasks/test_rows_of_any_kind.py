"""Whatever stands in a row: it becomes a problem that can be judged and kept, or it is counted."""

import math

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.problem import CHECKERS, Problem
from envs.tasks.parsers import SkipRow
from envs.tasks.rows import convert_row
from envs.tasks.stored import load_entries, row_of, schema
from tests.envs.tasks import contest_rows as made
from tests.envs.tasks.dataset_rows import code_contests_row, converter_of, taco_row

SOUND = {
    "taco": taco_row(0, tags="['a']", memory_limit="5 GB", difficulty="EASY"),
    "apps": taco_row(0, problem_id=7),
    "taco_verified": made.taco_verified(),
    "code_contests": code_contests_row(0, "A", cf_tags=["a"], time_limit={"seconds": 1}),
    "humaneval": {
        "prompt": "def f(a):\n",
        "entry_point": "f",
        "test": "def check(f):\n    assert f(1) == [2.5]\n",
        "canonical_solution": "    return [2.5]",
    },
    "mbpp": {"text": "Call f.", "test_list": ["assert f(2**3) == {1: (2,)}"], "code": "x"},
    "deepcoder": made.deepcoder_lcb(function=True),
    "codeforces": made.codeforces(generated_checker="print(1)"),
    "livecodebench": made.livecodebench(),
    "codecontests_plus": made.codecontests_plus(),
}
TEXT = st.text(st.characters(codec=None), max_size=12)
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.integers(10**4299, 10**4301), st.sampled_from([math.inf, -0.0])
)
ODD = st.sampled_from(["[" * 3000, '{"a": [', "9" * 400 + " s", "-1 s", "1e9", "\x00", "x = 1"])
LEAF = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT, ODD)
ANY = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2)
)


def changed(value):
    """The value, or another one, in it or in its place."""
    inside = st.nothing()
    if isinstance(value, dict):
        inside = st.fixed_dictionaries({}, optional={k: changed(v) for k, v in value.items()})
    if isinstance(value, list):
        inside = st.lists(st.sampled_from(value).flatmap(changed), max_size=3) if value else ANY
    return st.one_of(st.just(value), inside, ANY)


@pytest.mark.parametrize("name", SOUND)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_row_gives_a_sound_problem_or_a_reason(name, data):
    item = convert_row(converter_of(name), data.draw(changed(SOUND[name])), 0)
    if isinstance(item, SkipRow):
        assert str(item)
        return
    assert isinstance(item, Problem) and item.checker.split()[0] in CHECKERS and item.tests
    (entry,) = load_entries([pa.RecordBatch.from_pylist([row_of(item)], schema=schema())])
    assert entry.problem() == item and entry.problem().hash == item.hash


@pytest.mark.parametrize("name", SOUND)
def test_the_sound_rows_are_sound(name):
    assert isinstance(convert_row(converter_of(name), SOUND[name], 0), Problem)
