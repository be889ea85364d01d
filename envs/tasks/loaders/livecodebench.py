"""LiveCodeBench (livecodebench/code_generation_lite; Jain et al. 2024): a test set with dates.

Release v6 is test.jsonl to test6.jsonl, release v5 the same without test6.jsonl. The public tests
are JSON; the private ones are that too, or base64 of zlib of a pickle of JSON. Read: the hub's
listing, LiveCodeBench's own reader and judge, and other public readers (not the rows themselves).

LiveCodeBench compares outputs exactly. Where the statement accepts several answers, the problem is
marked `needs_checker` as in every data set here, so fewer problems are scored than there.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import zlib
from typing import Any, NoReturn

from envs.problem import Problem
from envs.tasks.checker_rules import checker_for
from envs.tasks.parsers import Row, SkipRow, iso_date, load_json, named_by_row, tests_of

# LiveCodeBench's own reader takes any size. Its largest rows hold about a hundred megabytes.
MAX_PACKED = 256 * 2**20  # characters of base64
MAX_UNPACKED = 512 * 2**20  # bytes of the pickle


def problem(row: Row, name: str) -> Problem:
    """Convert a row; its samples are the public tests. Raises SkipRow."""
    statement, starter_code = row.get("question_content"), row.get("starter_code") or ""
    if not isinstance(statement, str):
        raise SkipRow("question_content is not a text")
    public = load_json(row.get("public_test_cases"), "public_test_cases") or []
    private = _unpacked(row.get("private_test_cases")) or []
    if not isinstance(public, list) or not isinstance(private, list):
        raise SkipRow("tests are not a list of objects")
    if not private:
        raise SkipRow("no private tests")
    fn_name, tests = tests_of(public + private, row.get("metadata"), starter_code)
    samples = tests_of(public, row.get("metadata"), starter_code)[1] if public else ()
    return Problem(
        name=named_by_row(name, row.get("question_id")),
        statement=statement,
        samples=samples,
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        difficulty=row.get("difficulty") or "",
        source=row.get("platform") or "",
        date=iso_date(row.get("contest_date")),
    )


def _unpacked(packed: Any) -> Any:
    """Return private tests: JSON, or base64 of zlib of a pickle of JSON. Raises SkipRow."""
    what = "private_test_cases"
    if not isinstance(packed, str):
        return packed
    if packed.lstrip()[:1] in ("[", "{", ""):
        return load_json(packed, what)
    if len(packed) > MAX_PACKED:
        raise SkipRow(f"{what} are over {MAX_PACKED >> 20} MiB")
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED)
    except (binascii.Error, ValueError, zlib.error):
        raise SkipRow(f"{what} are neither JSON nor base64 of zlib") from None
    if stream.unconsumed_tail:
        raise SkipRow(f"{what} are over {MAX_UNPACKED >> 20} MiB unpacked")
    if not stream.eof:
        raise SkipRow(f"{what} are cut off")
    try:
        text = _TextUnpickler(io.BytesIO(content)).load()
    except SkipRow:
        raise
    except Exception:  # a broken pickle may raise anything
        raise SkipRow(f"{what} are a broken pickle") from None
    if not isinstance(text, str):
        raise SkipRow(f"{what} are a pickle of something else than text")
    return load_json(text, what)


class _TextUnpickler(pickle._Unpickler):
    """Unpickles texts. `pickle.loads` runs whatever a file asks for.

    Without functions and classes no opcode can call anything. The version in Python keeps its memo
    in a dict: the one in C takes as much memory as a memo's index says.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SkipRow("private_test_cases ask for more than plain values")
