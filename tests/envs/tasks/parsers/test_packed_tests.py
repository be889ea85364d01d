"""Pickles of tests: plain values come out, and everything else is refused without being run."""

import base64
import io
import pickle
import zlib

import pytest

from envs.tasks.parsers import packed_tests
from envs.tasks.parsers.field_parsers import SkipRow
from envs.tasks.parsers.packed_tests import load_tests, read_pickle
from tests.envs.tasks.contest_rows import packed

PLAIN = [
    [],
    {},
    "",
    "tests \U0001f600 é",
    "x" * 300_000,
    [{"input": "1 2\n", "output": "3\n", "metadata": None}] * 1,
    [{"input": f"{i}", "output": 0.5, "ok": True, "n": -(2**70)} for i in range(300)],
    {"inputs": [["a", ["b"]], 1, 255, 256, 70_000, -1], "fn_name": False},
]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_plain_values_come_out_as_pickle_reads_them(value, protocol):
    assert read_pickle(pickle.dumps(value, protocol), "tests") == value


class Opens:
    def __reduce__(self):
        return open, ("/tmp/never", "w")


def pickled(*parts):
    return b"\x80\x04" + b"".join(parts) + b"."


REFUSED = {
    "function": pickle.dumps(Opens()),
    "class": pickle.dumps([len]),
    "bytes": pickle.dumps(b"1"),
    "set": pickle.dumps({1}),
    "tuple": pickle.dumps((1, 2, 3, 4)),
    "bytearray": pickled(b"\x96" + (2**62).to_bytes(8, "little")),
    "extension": pickled(b"\x82\x01"),
    "persistent": pickled(b"Pname\n"),
    "old protocol": pickle.dumps([1], 0),
    "itself": pickled(b"]", b"\x94", b"h\x00", b"a"),
    "unknown opcode": b"\x80\x04\xff.",
    "no end": b"\x80\x04]",
    "empty": b"",
    "text longer than the file": pickled(b"\x8d" + (2**40).to_bytes(8, "little")),
    "append to nothing": pickled(b"K\x01", b"a"),
    "marks without a start": pickled(b"]", b"K\x01", b"e"),
    "key without a value": pickled(b"}", b"(", b"K\x01", b"u"),
    "list as a key": pickled(b"}", b"]", b"K\x01", b"s"),
    "two values": pickled(b"K\x01", b"K\x02"),
    "only a mark": pickled(b"("),
    "a mark inside": pickled(b"]", b"(", b"a"),
    "recall of nothing": pickled(b"h\x05"),
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_other_pickles_are_refused(content):
    with pytest.raises(SkipRow, match=r"^tests (are a broken pickle|ask for|hold)"):
        read_pickle(content, "tests")


def test_references_cannot_grow_a_small_pickle():
    """Thirty lists, each with the one before twice: a billion values for a few bytes."""
    laughing = []
    for _ in range(30):
        laughing = [laughing, laughing]
    with pytest.raises(SkipRow, match="large value twice"):
        read_pickle(pickle.dumps(laughing), "tests")
    text = "x" * 1000
    with pytest.raises(SkipRow, match="large value twice"):
        read_pickle(pickle.dumps([text, text]), "tests")


def test_the_number_of_values_is_bounded(monkeypatch):
    monkeypatch.setattr(packed_tests, "MAX_OPCODES", 1000)
    with pytest.raises(SkipRow, match="over 1000 values"):
        read_pickle(pickle.dumps(list(range(300, 3000))), "tests")


def test_a_bomb_is_never_unpacked(monkeypatch):
    monkeypatch.setattr(packed_tests, "MAX_UNPACKED", 2**20)
    monkeypatch.setattr(packed_tests, "MAX_PACKED", 2**15)
    bomb = base64.b64encode(zlib.compress(bytes(8 * 2**20))).decode()
    with pytest.raises(SkipRow, match=r"^tests are over 1 MiB unpacked$"):
        load_tests(bomb, "tests")
    with pytest.raises(SkipRow, match=r"^tests are over 0 MiB$"):
        load_tests("A" * 2**16, "tests")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (packed("[1]")[:-8], "(are cut off|neither)"),
        (base64.b64encode(b"no zlib").decode(), "neither JSON nor base64 of zlib"),
        ("not base64", "neither JSON nor base64 of zlib"),
        (packed("[1, "), "is not JSON"),
        (packed(""), "is empty"),
        ("", "is empty"),
        ("[1", "is not JSON"),
    ],
)
def test_broken_columns_say_why(text, reason):
    with pytest.raises(SkipRow, match=reason):
        load_tests(text, "tests")


def test_other_types_of_a_column():
    assert load_tests(packed("[1]"), "tests") == load_tests("[1]", "tests") == [1]
    assert load_tests(packed([{"a": 1}]), "tests") == [{"a": 1}]
    assert load_tests(None, "tests") is None
    with pytest.raises(SkipRow):
        load_tests(packed(io.BytesIO(b"1")), "tests")
