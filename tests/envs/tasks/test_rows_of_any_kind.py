"""Whatever stands in a row: it becomes a problem that can be judged and kept, or it is counted."""

import json
import math

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.problem import CHECKERS, Problem
from envs.tasks.parsers import SkipRow
from envs.tasks.rows import convert_row
from envs.tasks.stored import load_entries, row_of, schema
from tests.envs.tasks.contest_rows import packed
from tests.envs.tasks.dataset_rows import converter_of

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
TEXT = st.text(st.characters(codec=None), max_size=12)
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.integers(10**4299, 10**4301), st.sampled_from([math.inf, -0.0])
)
LEAF = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
ANY = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
TESTS = st.lists(st.one_of(TEXT, st.lists(LEAF, max_size=3), LEAF), max_size=3)
LIMIT = st.sampled_from(["2 seconds", "9" * 400 + " s", "-1 s", "0 seconds", "1e9", ".", "5 GB"])


def dumped(strategy):
    """The JSON of a value; what JSON cannot say becomes a text that is not JSON."""

    def text(value):
        try:
            return json.dumps(value)
        except ValueError:
            return "{" * 3

    return strategy.map(text)


def or_anything(strategy):
    return st.one_of(strategy, ANY)


def row(columns):
    return st.fixed_dictionaries(
        {}, optional={name: or_anything(strategy) for name, strategy in columns.items()}
    )


TACO_ROW = row(
    {
        "question": TEXT,
        "input_output": dumped(
            st.fixed_dictionaries(
                {"inputs": TESTS, "outputs": TESTS}, optional={"fn_name": or_anything(TEXT)}
            )
        ),
        "solutions": dumped(st.lists(TEXT, max_size=2)),
        "starter_code": st.sampled_from(["", "def f(a):", "class S:\n def g(self): 0", "# none"]),
        "tags": st.sampled_from(["[]", "['a']", "[1, 'a']", "[" * 3000, "{}", "\x00"]),
        "time_limit": LIMIT,
        "memory_limit": LIMIT,
        "difficulty": TEXT,
        "source": TEXT,
        "problem_id": LEAF,
    }
)
COLUMN = st.fixed_dictionaries({"input": TESTS, "output": TESTS})
CODE_CONTESTS_ROW = row(
    {
        "name": TEXT,
        "description": TEXT,
        "public_tests": COLUMN,
        "private_tests": COLUMN,
        "generated_tests": COLUMN,
        "source": st.integers(-2, 99),
        "difficulty": st.integers(),
        "cf_tags": st.lists(LEAF, max_size=3),
        "time_limit": st.fixed_dictionaries({"seconds": NUMBERS, "nanos": NUMBERS}),
        "memory_limit_bytes": NUMBERS,
        "solutions": st.fixed_dictionaries({"language": TESTS, "solution": TESTS}),
    }
)
VALUE = st.recursive(
    st.integers(-(2**70), 2**70) | st.floats() | TEXT | st.binary(max_size=3) | st.none(),
    lambda inner: st.one_of(
        *(st.lists(inner, max_size=2).map(kind) for kind in (list, tuple)),
        st.dictionaries(TEXT, inner, max_size=2),
    ),
).map(repr)
ASSERT = st.one_of(
    st.builds("assert {1}({0}) == {2}".format, VALUE, st.sampled_from("fg"), VALUE),
    st.builds("assert abs(f({0}) - {1}) < {2}".format, VALUE, VALUE, st.floats()),
    st.builds("assert f({0} {1} {2})".format, VALUE, st.sampled_from(["*", "**", "%"]), VALUE),
    TEXT,
)
HUMANEVAL_ROW = st.fixed_dictionaries(
    {
        "prompt": TEXT,
        "entry_point": TEXT,
        "test": or_anything(st.builds("def check(f):\n    {0}\n    {1}".format, ASSERT, ASSERT)),
    },
    optional={"task_id": LEAF, "canonical_solution": or_anything(TEXT)},
)
MBPP_ROW = st.fixed_dictionaries(
    {
        "text": or_anything(TEXT),
        "test_list": or_anything(st.lists(ASSERT, min_size=1, max_size=2)),
    },
    optional={
        "task_id": LEAF,
        "code": or_anything(TEXT),
        "test_setup_code": st.sampled_from(["", "x = 1"]),
        "challenge_test_list": or_anything(st.lists(ASSERT, max_size=2)),
    },
)
ITEM = row({"input": TEXT, "output": TEXT, "testtype": st.sampled_from(["stdin", "functional"])})
ITEMS = st.lists(ITEM, max_size=3)
FUNCTION = row({"func_name": TEXT})
DEEPCODER_ROW = row(
    {
        "problem": TEXT,
        "tests": dumped(ITEMS | st.fixed_dictionaries({"inputs": TESTS, "outputs": TESTS})),
        "solutions": st.lists(TEXT | st.just("```\nprint(1)\n```"), max_size=2),
        "starter_code": st.sampled_from(["", "def f(a):", "# none"]),
        "metadata": FUNCTION | dumped(FUNCTION),
    }
)
CODEFORCES_ROW = row(
    {
        "id": TEXT,
        "contest_start": NUMBERS,
        "time_limit": NUMBERS,
        "memory_limit": NUMBERS,
        "description": TEXT,
        "note": TEXT,
        "examples": ITEMS,
        "official_tests": ITEMS,
        "rating": NUMBERS,
        "tags": st.lists(LEAF, max_size=2),
        "generated_checker": TEXT,
    }
)
LIVECODEBENCH_ROW = row(
    {
        "question_content": TEXT,
        "question_id": LEAF,
        "contest_date": TEXT,
        "starter_code": st.sampled_from(["", "class S:\n def g(self): 0"]),
        "public_test_cases": dumped(ITEMS),
        "private_test_cases": dumped(ITEMS) | dumped(ITEMS).map(packed) | ANY.map(packed),
        "metadata": dumped(FUNCTION),
    }
)
PROGRAMS = st.lists(row({"code": TEXT, "language": st.sampled_from(["py3", "cpp"])}), max_size=2)
CODECONTESTS_PLUS_ROW = row(
    {
        "id": LEAF,
        "description": TEXT,
        "time_limit": NUMBERS,
        "memory_limit": NUMBERS,
        "checker": TEXT,
        "test_cases": ITEMS,
        "correct_submissions": PROGRAMS,
        "incorrect_submissions": PROGRAMS,
    }
)


ROWS = {
    "taco": TACO_ROW,
    "apps": TACO_ROW,
    "taco_verified": TACO_ROW,
    "code_contests": CODE_CONTESTS_ROW,
    "humaneval": HUMANEVAL_ROW,
    "mbpp": MBPP_ROW,
    "deepcoder": DEEPCODER_ROW,
    "codeforces": CODEFORCES_ROW,
    "livecodebench": LIVECODEBENCH_ROW,
    "codecontests_plus": CODECONTESTS_PLUS_ROW,
}


@pytest.mark.parametrize("name", ROWS)
@SOME
@given(data=st.data())
def test_a_row_gives_a_sound_problem_or_a_reason(name, data):
    rows = data.draw(st.lists(or_anything(ROWS[name]), max_size=4))
    items = [convert_row(converter_of(name), row, number) for number, row in enumerate(rows)]
    for item in items:
        if isinstance(item, SkipRow):
            assert str(item)
            continue
        assert isinstance(item, Problem) and item.checker.split()[0] in CHECKERS and item.tests
        (entry,) = load_entries([pa.RecordBatch.from_pylist([row_of(item)], schema=schema())])
        assert entry.problem() == item and entry.hash == item.hash
