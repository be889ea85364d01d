"""Hints on columns of one's own, and where a nested column is not."""

import pytest

from envs.tasks.config import FieldsConfig
from envs.tasks.loaders.own_columns import check_columns, function_hint, missing_case

FIELDS = FieldsConfig(statement="text", inputs="io.in", outputs="io.out")


def row(inputs, **columns):
    return {"text": "Add.", "io": [{"in": item, "out": "3"} for item in inputs]} | columns


@pytest.mark.parametrize(
    "inputs", [["1 2\n"], [["1 2", "3"]], ["[1, 2]"], [7], [], ['{"a": 1}'], [None]]
)
def test_texts_and_lists_of_lines_are_no_sign_of_a_function(inputs):
    assert function_hint(FIELDS, [None, row(inputs)]) is None


@pytest.mark.parametrize("odd", [[1, 2], ["1", 2], [[1, 2], "x"], [None]])
def test_a_list_with_anything_but_text_is_shown(odd):
    said = function_hint(FIELDS, [row(["1\n"]), row(["1\n", odd])])
    assert said is not None and said.endswith("task.fields.fn_name=COLUMN")
    assert "lines of stdin" in said


def test_a_column_that_names_a_function_of_the_programs_is_shown():
    program = "class Solution:\n    def add (self, a, b):\n        return a + b"
    found = row(["1\n2"], meta={"entry": "add"}, right=[program], level="easy")
    said = function_hint(FIELDS, [found])
    assert said is not None and said.endswith("task.fields.fn_name=meta.entry")
    assert function_hint(FIELDS, [found | {"right": ["def plus(a, b): ..."]}]) is None
    mapped = FieldsConfig(**vars(FIELDS) | {"fn_name": "meta.entry"})
    assert function_hint(mapped, [found]) is None


def test_the_names_on_the_level_where_a_column_is_not_are_listed():
    nested = [{"text": "", "io": [{"stdin": "1"}, {"stdout": "1"}], "deep": '{"a": {"b": 1}}'}]

    def said(column):
        fields = FieldsConfig(statement="text", inputs="io.stdin", outputs=column)
        with pytest.raises(ValueError) as error:
            check_columns(fields, nested, "rows.jsonl")
        return str(error.value).partition("no such column in rows.jsonl; ")[2]

    assert said("io.stdot") == "io has stdin, stdout; did you mean 'io.stdout'?"
    assert said("deep.a.count") == "deep.a has b"
    assert said("text.a") == "text has no columns inside"
    assert said("ios.stdout") == "it has text, io, deep; did you mean 'io'?"


def test_the_first_case_without_a_value_is_found():
    cases = [{"in": "1", "out": None}, {"in": "2"}, {}]
    assert missing_case({"io": cases}, "io.out") == 2
    assert missing_case({"io": cases[:1]}, "io.out") is None
    assert missing_case({"io": cases[1:]}, "io.out") == 1
    assert missing_case({"io.out": cases}, "io.out") is None
