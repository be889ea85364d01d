"""Files of rows: found, read in every format, converted once, and what is said of bad ones."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas
import pyarrow as pa
import pytest

from envs.caching import cache_root
from envs.problem import Problem
from envs.tasks import open_task, rows
from envs.tasks.parsers import stdin_tests
from envs.tasks.rows import Converter, SizeLimits, converted, find_files, read_rows
from envs.tasks.task import FilesConfig
from tests.envs.tasks import contest_rows
from tests.envs.tasks.dataset_rows import (
    code_contests_row,
    config,
    converter_of,
    every_problem,
    load_problems,
    names,
    statement,
    taco_row,
    write,
)

ROOT = Path(__file__).resolve().parents[3]
LAYOUT = FilesConfig(train="ALL/train-*.parquet", test="ALL/test-*.parquet")
LIMITS = SizeLimits(max_tests=1000, max_bytes=100_000_000)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))


def stored():
    return sorted((cache_root() / "problems").glob("*.arrow"))


def opened(path, limits=LIMITS):
    files = find_files(str(path), "task.path", FilesConfig())["all"]
    return converted(files, converter_of("taco"), limits, alone=True)


@pytest.fixture
def hub(tmp_path):
    """A folder with the files of TACO and CodeContests where the hub has them."""
    tables = {
        "taco/ALL/train-00000-of-00002": [taco_row(i) for i in range(30)],
        "taco/ALL/train-00001-of-00002": [taco_row(i) for i in range(30, 60)],
        "taco/ALL/test-00000-of-00001": [taco_row(i) for i in range(60, 70)],
        "code_contests/data/train-00000-of-00001": [
            code_contests_row(i, f"A{i}") for i in range(9)
        ],
        "code_contests/data/valid-00000-of-00001": [code_contests_row(70, "V")],
        "code_contests/data/test-00000-of-00001": [code_contests_row(71, "T")],
    }
    for name, content in tables.items():
        file = tmp_path / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pandas.DataFrame(content).to_parquet(file)
    return tmp_path


def test_the_layout_of_the_hub_gives_the_problems_of_its_files(hub):
    streamed = open_task(config("taco", f"file://{hub}/taco"))
    (hub / "taco" / "EASY").mkdir()
    (hub / "taco" / "EASY" / "train-0.parquet").write_bytes(b"not of the layout")
    from_files = open_task(config("taco", f"{hub}/taco"))
    assert len(names(every_problem(streamed))) == from_files.rows_read == 70
    assert "taco/00059@train" in names(every_problem(streamed))  # numbered through the files

    def known(problems):
        return sorted((p.statement, p.hash, p.solutions) for p in problems)

    for split in ("train", "tune", "choose", "test"):
        assert known(getattr(streamed, split)) == known(getattr(from_files, split))


def test_a_json_array_is_read_item_by_item(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK", 7)
    content = [contest_rows.taco_verified(i) for i in range(3)]
    content[1] |= {"odd": 'a "quoted" ] \\'}
    file = tmp_path / "rows.json"
    file.write_text(" \n" + json.dumps(content, indent=1))
    (found,) = find_files(str(file), "task.path", FilesConfig())["all"]
    assert list(read_rows(found)) == [(f"row {i}", row) for i, row in enumerate(content, 1)]
    file.write_text(json.dumps(content)[:-9])
    with pytest.raises(ValueError, match=r"rows\.json cannot be read: .* the array is not whole"):
        list(read_rows(found))


def test_every_format_holds_the_same_problems(tmp_path):
    content = [taco_row(i) for i in range(40)]
    table = pa.Table.from_pylist(content)
    write(tmp_path / "rows.jsonl", content)
    (tmp_path / "rows.json").write_text(json.dumps(content))
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    table.to_pandas().to_csv(tmp_path / "rows.csv", index=False)
    for name, writer in {"stream": pa.ipc.new_stream, "file": pa.ipc.new_file}.items():
        with writer(str(tmp_path / f"{name}.arrow"), table.schema) as sink:
            sink.write_table(table, max_chunksize=7)
    files = ("rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "stream.arrow", "file.arrow")
    assert len({open_task(config("taco", str(tmp_path / name))).data_hash for name in files}) == 1


@pytest.mark.parametrize(
    ("path", "files", "said"),
    [
        ("hf://datasets/BAAI/TACO@main", LAYOUT, "@COMMIT"),
        ("hf://datasets/BAAI/TACO", LAYOUT, "now is hf://datasets/BAAI/TACO@" + "1" * 40),
        ("file:///tmp", FilesConfig(), r"task\.files\.train=PATTERN"),
        ("file:///tmp", FilesConfig(train="a.txt"), r"task\.files\.train=a\.txt: it must end in"),
        ("assets/none", LAYOUT, "no such file or folder; looked for /"),
        (__file__, LAYOUT, r"not a file of rows; it must end in \.parquet"),
        (str(ROOT / "conf"), LAYOUT, r"no train\*, valid\*, choose\* or test\* file"),
        (f"file://{ROOT}/docs", LAYOUT, "no such file there"),
    ],
)
def test_what_holds_no_rows_is_said_in_a_line(monkeypatch, path, files, said):
    import huggingface_hub

    newest = SimpleNamespace(sha="1" * 40)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: newest)
    with pytest.raises(ValueError, match=said) as error:
        find_files(path, "task.path", files)
    assert str(error.value).startswith("task.") and "\n" not in str(error.value)


def test_a_broken_file_is_named(hub):
    (hub / "taco" / "ALL" / "test-00000-of-00001.parquet").write_bytes(b"PAR1 cut short")
    for path in (f"file://{hub}/taco", f"{hub}/taco"):
        with pytest.raises(ValueError, match=r"^task\.path=.*test-00000.* cannot be read") as error:
            open_task(config("taco", path))
        assert "\n" not in str(error.value)


def test_a_file_whose_first_rows_give_no_problem_is_refused(tmp_path):
    file = write(tmp_path / "rows.jsonl", [{"question": "x", "input_output": ""}] * 300)
    with pytest.raises(ValueError, match=r"none of the first 200 rows .*: line 1: input_output is"):
        opened(file)
    assert not stored()


def test_what_was_converted_is_read_back_with_the_reasons_of_the_others(tmp_path):
    good = [taco_row(i) for i in range(5)]
    file = tmp_path / "rows.jsonl"
    lines = [*map(json.dumps, good), "", "{broken", "[1]", json.dumps({"question": "?"})]
    file.write_text("\n".join(lines) + "\n")
    first, again = opened(file), opened(file)
    assert len(stored()) == 1 and first.rows == 8
    assert (
        first.skipped
        == again.skipped
        == {"the line is not a JSON object": 2, "input_output is not an object": 1}
    )
    assert first.first_skipped["the line is not a JSON object"] == f"line 7 of {file}"
    expected, _ = load_problems("taco", file)
    for found, problem in zip(again.entries, expected, strict=True):
        back = found.problem()
        assert (back.name, back.statement, back.solutions) == (
            problem.name,
            problem.statement,
            problem.solutions,
        )
        assert sorted(test.input for test in back.tests) == [t.input for t in problem.tests]
        kept_hash = vars(back).pop("hash")
        assert back.hash == kept_hash


def test_another_content_limit_or_code_is_converted_anew(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    write(file, [taco_row(i) for i in range(9)])
    assert {len(entry.problem().tests) for entry in opened(file).entries} == {6}
    few = opened(file, SizeLimits(max_tests=2, max_bytes=10**9))
    assert {len(entry.problem().tests) for entry in few.entries} == {2}
    with file.open("a") as lines:
        lines.write("{}\n")
    assert opened(file).rows == 10 and len(stored()) == 3
    whole, changed = Path.read_bytes, ROOT / "envs" / "tasks" / "checker_rules.py"
    monkeypatch.setattr(Path, "read_bytes", lambda path: whole(path) + b"#" * (path == changed))
    opened(file)
    assert len(stored()) == 4


PREPARE = """
import sys
from envs.tasks import open_task
from tests.envs.tasks.dataset_rows import config
open_task(config("taco", sys.argv[1]))
"""


@pytest.mark.slow  # processes that import everything
def test_a_killed_conversion_leaves_nothing_and_two_at_once_give_one_file(tmp_path):
    file = tmp_path / "rows.jsonl"
    write(file, [taco_row(i) for i in range(3000)])
    command = [sys.executable, "-c", PREPARE, str(file)]
    process = subprocess.Popen(command, cwd=ROOT)
    while not list(cache_root().glob("problems/*.tmp")) and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not stored()
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(stored()) == 1 and not list(cache_root().glob("problems/*.tmp"))


def test_tests_are_capped_and_generated_ones_come_last(tmp_path):
    made = {"input": [f"{i}\n" for i in range(100, 130)], "output": ["1\n"] * 30}
    row = code_contests_row(0, "A", generated_tests=made)
    file = write(tmp_path / "rows.jsonl", [row])

    def inputs(**limits):
        (problem,) = every_problem(open_task(config("code_contests", file, **limits)))
        assert problem.samples[0] in problem.tests
        assert problem.generated_tests == sum(int(test.input) >= 100 for test in problem.tests)
        return [int(test.input) for test in problem.tests]

    assert len(inputs()) == 39 and sorted(inputs()[:9]) == list(range(9))
    few, more = inputs(max_tests=5), inputs(max_tests=12)
    assert few[0] == 1 and max(few) < 9 and more[:5] == few
    assert sorted(more[:9]) == list(range(9)) and min(more[9:]) >= 100
    none = open_task(config("code_contests", file, max_test_bytes=1))
    assert none.left_out == {"tests over task.max_test_bytes": 1}
    row["public_tests"] = {"input": ["1\n", "2" * 99], "output": ["1\n", "2\n"]}
    write(tmp_path / "rows.jsonl", [row, row | {"description": statement(1)}])
    fewer = open_task(config("code_contests", file, max_test_bytes=200))
    assert fewer.changed == {rows.DROPPED: 2, rows.RENAMED: 1} and len(every_problem(fewer)) == 2


def test_what_is_not_utf_8_is_said_with_its_first_line(tmp_path):
    lines = [json.dumps(taco_row(i) | {"source": "Größe"}, ensure_ascii=False) for i in range(2)]
    escaped = json.dumps(taco_row(2) | {"source": "\ud800"})
    (tmp_path / "rows.jsonl").write_bytes("\n".join([*lines, escaped]).encode("latin-1"))
    found = opened(tmp_path / "rows.jsonl")
    place = found.first_skipped["a text is not Unicode: save the file as UTF-8"]
    assert [*found.skipped.values()] == [2, 1] and place.startswith("line 1 of ")


def test_what_a_loader_gets_wrong_costs_its_row_and_no_more(tmp_path):
    def build(row, name):
        assert row["sound"], "as html.parser does"
        tests = stdin_tests(row["inputs"], ["1", row.get("value", "2")])
        function = "f" if row["checker"] == "call" else None
        return Problem(name, "Print it.", (), tests, checker=row["checker"], fn_name=function)

    content = [
        {"sound": True, "checker": "floats absolute=0.1 relative=0", "inputs": ["1", 2]},
        {"sound": True, "checker": "flaots", "inputs": ["1", "2"]},
        {"sound": True, "checker": "floats absolute=2.0 relative=0", "inputs": ["1", "2"]},
        {"sound": True, "checker": "tokens", "inputs": ["1", None]},
        {"sound": True, "checker": "call", "inputs": ["1", "2"], "value": "(1, 2)"},
        {"sound": False},
    ]
    file = write(tmp_path / "rows.jsonl", content)
    problems, skipped = load_problems(Converter(build, "own", ""), file)
    assert [problem.name for problem in problems] == ["own/00000"]
    assert skipped == {
        "there is no checker 'flaots'": 1,
        "there is no checker 'floats absolute=2.0 relative=0'": 1,
        "a test is neither a text nor a list of lines": 1,
        "an expected value is not JSON": 1,
        "a column cannot be read (AssertionError)": 1,
    }
