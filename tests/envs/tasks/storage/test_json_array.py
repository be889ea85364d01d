"""One JSON array as a file of rows: items are cut exactly where they end."""

import io
import json

import pytest

from envs.tasks.storage import json_array
from envs.tasks.storage.json_array import array_items, starts_array
from envs.tasks.storage.rows import read_rows

ARRAYS = (
    [],
    [1, -2.5, None, True, "a"],
    [{}, [], [[]], {"a": [{}]}],
    [{"text": 'quote " comma , brackets ]}[{'}, ']"', ",", "\\", '\\"', "\\\\", '\\\\"'],
    [{"a": "\n\t é \U0001f600", "b": {"c": [1, [2, "]"]]}}, [",", {",": ","}]],
)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("items", ARRAYS, ids=range(len(ARRAYS)))
def test_items_are_those_of_the_array(items, chunk, monkeypatch):
    monkeypatch.setattr(json_array, "_CHUNK", chunk)
    for layout in ({}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}):
        text = json.dumps(items, **layout)
        assert [json.loads(item) for item in array_items(io.StringIO(text))] == items


@pytest.mark.parametrize("text", ["[", "[1, 2", '[{"a": "]"}', '["\\"]', ""])
def test_an_array_that_is_not_closed_is_an_error(text):
    with pytest.raises(ValueError, match="not closed"):
        list(array_items(io.StringIO(text)))


def test_lines_and_arrays_are_told_apart():
    assert starts_array(io.StringIO(' \n[{"a": 1}]'))
    assert not starts_array(io.StringIO('{"a": [1]}\n'))


def test_rows_of_an_array_file(tmp_path):
    rows = [{"a": i, "text": "]},{[" * i} for i in range(5)]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows, indent=1))
    assert list(read_rows(file)) == rows and list(read_rows(file, 3)) == rows[3:]
    file.write_text(json.dumps(rows)[:-9])
    with pytest.raises(ValueError, match=r"rows\.json: not a whole \.json file"):
        list(read_rows(file))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(read_rows(file)) == rows
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # a byte order mark
    assert list(read_rows(file)) == rows
