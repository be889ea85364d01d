"""Contests: TACO, APPS, DeepCoder, CodeContests, CodeContests+, Codeforces, LiveCodeBench.

Each function converts a row to a Problem, or raises SkipRow. Of TACO-verified, DeepCoder,
CodeContests+, Codeforces and LiveCodeBench were read: the hub's listing, the card, and public code
that reads the rows (not the rows themselves).
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import pickle
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

from envs.problem import CheckerProgram, Problem, Test
from envs.tasks import parsers
from envs.tasks.checker_rules import checker_for
from envs.tasks.parsers import Row, SkipRow, load_json, named_by_row, plain_lines, stdin_tests

# Caps on CodeContests+, of which one problem may have a thousand tests and programs.
MAX_TEST_BYTES = 256 * 2**10  # of a test, input and output together
LARGE_TESTS = 2  # tests of a problem that may be larger: without them slow programs would pass
MAX_LARGE_BYTES = 4 * 2**20
MAX_PROGRAMS = 40  # of each kind
# LiveCodeBench's own reader takes any size. Its largest rows hold about a hundred megabytes.
MAX_PACKED = 256 * 2**20  # characters of base64
MAX_UNPACKED = 512 * 2**20  # bytes of the pickle
_PYTHON_3 = 3  # CodeContests' code for the language
_PYTHON_3_NAMES = ("py3", "python3", "pypy3")  # of CodeContests+
_SOURCES = ["UNKNOWN_SOURCE", "CODECHEF", "CODEFORCES", "HACKEREARTH", "CODEJAM", "ATCODER", "AIZU"]
_SECTIONS = {"Input": "input_format", "Output": "output_format", "Note": "note"}


# ---- TACO and data sets of its kind: JSON, Python lists and free text in string columns ----


def taco(row: Row, name: str) -> Problem:
    """Convert a row of TACO (BAAI/TACO, Li et al. 2023), whose statements include their samples.

    The problem is call-based if the row names a function or has starter code. Raises SkipRow.
    """
    fields = load_json(row.get("input_output"), "input_output")
    if not isinstance(fields, dict):
        raise SkipRow("input_output is not an object")
    starter_code = row.get("starter_code") or ""
    fn_name, tests = _taco_tests(fields, starter_code)
    statement = row.get("question") or ""
    return Problem(
        name=name,
        statement=statement,
        samples=(),
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=parsers.seconds(row.get("time_limit")),
        memory_limit_mb=parsers.megabytes(row.get("memory_limit")),
        difficulty=row.get("difficulty") or "",
        tags=parsers.tag_list(row.get("tags")),
        source=row.get("source") or "",
        date=parsers.iso_date(row.get("date")),
        solutions=parsers.programs(row.get("solutions"), "solutions"),
        incorrect_solutions=parsers.programs(row.get("incorrect_solutions"), "incorrect_solutions"),
    )


def apps(row: Row, name: str) -> Problem:
    """Convert a row of APPS (codeparrot/apps, Hendrycks et al. 2021), named by its problem_id."""
    return taco(row, named_by_row(name, row.get("problem_id")))


def taco_verified(row: Row, name: str) -> Problem:
    """Convert a row of likaixin/TACO-verified, named by its id. Raises SkipRow.

    It has problems of TACO's training split with solutions that its author ran against the tests;
    there `solutions` is a list, and `id` numbers the rows.
    """
    return taco(row, named_by_row(name, row.get("id")))


def deepcoder(row: Row, name: str) -> Problem:
    """Convert a row of any configuration of agentica-org/DeepCoder-Preview-Dataset. Raises SkipRow.

    The columns are problem, tests (JSON), and by configuration solutions (of primeintellect in
    Markdown fences), starter_code, metadata. The shape of the tests tells the configuration:

        taco                 {"inputs": [...], "outputs": [...], optional "fn_name"}
        primeintellect       [{"type": "stdin_stdout" | "function_call", "input", "output",
                               "fn_name"}]
        lcbv5, codeforces    [{"testtype": "functional" | "stdin", "input", "output"}], with the
                             function's name in metadata
    """
    statement, starter_code = row.get("problem"), row.get("starter_code") or ""
    if not isinstance(statement, str):
        raise SkipRow("problem is not a text")
    fields = load_json(row.get("tests"), "tests")
    if isinstance(fields, Mapping):
        fn_name, tests = _taco_tests(fields, starter_code)
    else:
        fn_name, tests = parsers.tests_of(fields, row.get("metadata"), starter_code)
    solutions = parsers.programs(row.get("solutions"), "solutions")
    return Problem(
        name=name,
        statement=statement,
        samples=(),  # statements include them
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        solutions=parsers.fenced_programs(solutions),
    )


def _taco_tests(fields: Mapping, starter_code: str) -> tuple[str | None, tuple[Test, ...]]:
    """Return (the function to call or None, tests)."""
    fn_name = parsers.function_name(fields.get("fn_name"), starter_code)
    parse_tests = parsers.call_tests if fn_name else stdin_tests
    return fn_name, parse_tests(fields.get("inputs"), fields.get("outputs"))


# ---- CodeContests: three kinds of tests, five languages ----


def code_contests(row: Row, name: str) -> Problem:
    """Convert a row of deepmind/code_contests (Li et al. 2022), with all its Python 3 programs.

    Raises SkipRow, also for a problem that reads or writes files.
    """
    if row.get("input_file") not in (None, "", "stdin"):
        raise SkipRow("reads a file")
    if row.get("output_file") not in (None, "", "stdout"):
        raise SkipRow("writes a file")

    def tests_in(column: str) -> tuple[Test, ...]:
        columns = row.get(column) or {}
        inputs, outputs = columns.get("input") or [], columns.get("output") or []
        if len(inputs) != len(outputs):
            raise SkipRow("inputs and outputs differ in number")
        return tuple(map(Test, map(plain_lines, inputs), outputs))

    def programs_in(column: str) -> tuple[str, ...]:
        columns = row.get(column) or {}
        pairs = zip(columns.get("language") or (), columns.get("solution") or (), strict=False)
        return tuple(program for language, program in pairs if language == _PYTHON_3)

    samples = tests_in("public_tests")
    handmade = dict.fromkeys(samples + tests_in("private_tests"))
    tests = tuple(handmade | dict.fromkeys(tests_in("generated_tests")))
    if not tests:
        raise SkipRow("no tests")
    statement = row.get("description") or ""
    memory_bytes, time = row.get("memory_limit_bytes") or 0, row.get("time_limit") or {}
    source = row.get("source") or 0
    if isinstance(source, int) and 0 <= source < len(_SOURCES):
        source = _SOURCES[source]
    return Problem(
        name=named_by_row(name, row.get("name")),
        statement=statement,
        samples=samples,
        tests=tests,
        checker=checker_for(statement, tests, None),
        generated_tests=len(tests) - len(handmade),
        time_limit_s=(time.get("seconds") or 0) + (time.get("nanos") or 0) / 1e9 or None,
        memory_limit_mb=-(-memory_bytes // 2**20) or None,
        difficulty=str(row.get("difficulty") or ""),
        tags=tuple(tag for tag in row.get("cf_tags") or () if tag),
        source=str(source),
        rating=parsers.rating(row.get("cf_rating")),
        solutions=programs_in("solutions"),
        incorrect_solutions=programs_in("incorrect_solutions"),
    )


def codecontests_plus(row: Row, name: str) -> Problem:
    """Convert a row of ByteDance-Seed/Code-Contests-Plus (Wang et al. 2025). Raises SkipRow.

    Its tests come from generators that a model wrote, with a testlib checker for each problem. The
    time limit is in milliseconds, the memory limit in megabytes. Configuration `1x` is the smallest
    with tests: 46 GB, streamed.
    """
    items = row.get("test_cases") or []
    if not items:
        raise SkipRow("no tests")
    tests, large = [], 0  # those that are small enough, and the first of the larger ones
    for test in stdin_tests([i["input"] for i in items], [i["output"] for i in items]):
        size = len(test.input.encode()) + len(test.output.encode())
        is_large = size > MAX_TEST_BYTES
        if not is_large or (size <= MAX_LARGE_BYTES and large < LARGE_TESTS):
            tests.append(test)
            large += is_large
    if not tests:
        raise SkipRow("all tests are too large")

    def programs_in(column: str) -> tuple[str, ...]:
        programs = (
            item["code"]
            for item in row.get(column) or ()
            if item["language"].lower() in _PYTHON_3_NAMES
        )
        return tuple(dict.fromkeys(programs))[:MAX_PROGRAMS]

    statement, source = row.get("description") or "", row.get("checker")
    return Problem(
        name=named_by_row(name, row.get("id")),
        statement=statement,
        samples=(),  # statements include them
        tests=tuple(tests),
        checker="program" if source else checker_for(statement, tests, None),
        generated_tests=len(tests),
        time_limit_s=(row.get("time_limit") or 0) / 1000 or None,
        memory_limit_mb=row.get("memory_limit") or None,
        source=row.get("source") or "",
        solutions=programs_in("correct_submissions"),
        incorrect_solutions=programs_in("incorrect_submissions"),
        checker_program=CheckerProgram("testlib", source) if source else None,
    )


# ---- Codeforces: ratings, dates, checker programs ----


def codeforces(row: Row, name: str) -> Problem:
    """Convert a row of open-r1/codeforces, configuration `verifiable`. Raises SkipRow.

    `official_tests` are the tests that Codeforces shows whole, those of under about 400 characters;
    the generated ones are 110 GB of other files, which are not read. A row without an official test
    beyond the statement's samples is skipped: a table of the samples would earn its reward. In 2026
    the card said CC-BY-4.0 in its header and ODC-By in its text. open-r1's own judge runs a checker
    as `checker.py input.txt correct_output.txt output.txt`.
    """
    if row.get("interaction_format"):
        raise SkipRow("interactive")
    if row.get("input_mode") == "file":
        # a program in the sandbox has no folder to find input.txt in
        raise SkipRow("reads input.txt and writes output.txt")
    if row.get("executable") is False:
        raise SkipRow("no program was ever run on its tests")

    def tests_in(column: str) -> tuple[Test, ...]:
        """Return the distinct tests of a column; one with a null is left out."""
        tests = (
            Test(plain_lines(test["input"]), plain_lines(test["output"]))
            for test in row.get(column) or ()
            if test["input"] is not None and test["output"] is not None
        )
        return tuple(dict.fromkeys(tests))

    def words(test: Test) -> str:
        """Return a test's input by words: an official copy of a sample has other line ends."""
        return " ".join(test.input.split())

    samples, official = tests_in("examples"), tests_in("official_tests")
    shown = set(map(words, samples))
    hidden = tuple(test for test in official if words(test) not in shown)
    if not hidden:
        raise SkipRow("no tests but the statement's samples")
    sections = [f"{title}\n\n{row[key]}" for title, key in _SECTIONS.items() if row.get(key)]
    statement = "\n\n".join([row.get("description") or "", *sections])
    # with the official copies of the samples: another output there proves several answers
    by_words = [Test(words(test), test.output) for test in samples + official]
    source = row.get("generated_checker")
    limit, memory = row.get("time_limit"), row.get("memory_limit")
    return Problem(
        name=named_by_row(name, row.get("id")),
        statement=statement,
        samples=samples,
        tests=samples + hidden,
        checker="program" if source else checker_for(statement, by_words, None),
        time_limit_s=limit or None,
        memory_limit_mb=math.ceil(memory) if memory else None,
        tags=parsers.tag_list(row.get("tags")),
        source="CODEFORCES",
        rating=parsers.rating(row.get("rating")),
        date=parsers.iso_date(row.get("contest_start")),
        checker_program=CheckerProgram("python", source) if source else None,
    )


# ---- LiveCodeBench: a test set with dates ----


def livecodebench(row: Row, name: str) -> Problem:
    """Convert a row of livecodebench/code_generation_lite (Jain et al. 2024). Raises SkipRow.

    Release v6 is test.jsonl to test6.jsonl, release v5 the same without test6.jsonl. The samples
    are the public tests, in JSON. LiveCodeBench compares outputs exactly. Where the statement
    accepts several answers, the problem is marked `needs_checker` as in every data set here, so
    fewer problems are scored than there.
    """
    statement, starter_code = row.get("question_content"), row.get("starter_code") or ""
    if not isinstance(statement, str):
        raise SkipRow("question_content is not a text")
    public = load_json(row.get("public_test_cases"), "public_test_cases") or []
    private = _unpacked(row.get("private_test_cases")) or []
    if not isinstance(public, list) or not isinstance(private, list):
        raise SkipRow("tests are not a list of objects")
    if not private:
        raise SkipRow("no private tests")
    fn_name, tests = parsers.tests_of(public + private, row.get("metadata"), starter_code)
    samples = parsers.tests_of(public, row.get("metadata"), starter_code)[1] if public else ()
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
        date=parsers.iso_date(row.get("contest_date")),
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
