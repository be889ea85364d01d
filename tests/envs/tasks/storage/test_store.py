"""Prepared data sets: converted once, whole or not at all, and the same after an interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from envs.tasks.storage import store as store_module
from envs.tasks.storage.store import prepare_store

from envs.cache_folder import cache_root
from envs.tasks.config import FilesConfig
from envs.tasks.rows import SizeLimits, convert_rows, find_sources, load_problems, read_rows
from envs.tasks.stored import StoredProblems, load_entries
from tests.envs.tasks.dataset_rows import converter_of
from tests.envs.tasks.storage.malformed_rows import write

ROOT = Path(__file__).resolve().parents[4]
TACO = converter_of("taco")
LIMITS = SizeLimits(max_tests=1000, max_bytes=100_000_000)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(store_module, "PART_ROWS", 25)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    write(path, 160)
    return path


def opened(file, limits=LIMITS):
    ((source,),) = find_sources(TACO, str(file), "task.path", FilesConfig()).values()
    return prepare_store(source, limits)


def problems(store):
    return list(StoredProblems(load_entries([store], alone=True)))


def part_files():
    return sorted(cache_root().glob("problems/*/part-*.arrow"))


def test_a_store_holds_what_the_rows_say(file, small_parts):
    store = opened(file)
    from_rows, skipped = load_problems(TACO, file)
    assert store.rows == 160 and store.skipped == skipped and skipped.total() > 10
    assert len(part_files()) == 7

    # the first row of a reason, across parts
    assert set(store.first_skipped) == set(skipped)
    rows = list(read_rows(file))
    for reason, place in store.first_skipped.items():
        number = int(place.removeprefix("line ").partition(" of ")[0])
        before = Counter(map(str, convert_rows(TACO, rows[: number - 1])))
        here = list(map(str, convert_rows(TACO, [rows[number - 1]])))
        assert here == [reason] and not before[reason]

    def known(problem):
        tests = sorted((test.input, test.output) for test in problem.tests)
        return problem.name, problem.statement, tests, problem.solutions, problem.tags

    assert list(map(known, problems(store))) == list(map(known, from_rows))
    for problem in problems(store)[:20]:
        kept_hash = vars(problem).pop("hash")
        assert problem.hash == kept_hash


def test_the_second_start_reads_no_row(file, monkeypatch):
    first = opened(file)
    ((source,),) = find_sources(TACO, str(file), "task.path", FilesConfig()).values()

    def read(_):
        raise AssertionError("the rows were read again")

    again = prepare_store(store_module.Source(**vars(source) | {"read": read}), LIMITS)
    assert problems(again) == problems(first) and again.skipped == first.skipped


def test_another_content_or_limit_is_another_store(file):
    few = opened(file, SizeLimits(max_tests=2, max_bytes=10**9))
    assert max(len(problem.tests) for problem in problems(few)) == 2
    assert max(len(problem.tests) for problem in problems(opened(file))) > 2
    with file.open("a") as lines:
        lines.write("{}\n")
    assert opened(file).rows == 161
    assert len(list((cache_root() / "problems").iterdir())) == 3


@pytest.mark.parametrize("step", store_module.STEPS, ids=lambda step: step.__name__)
def test_a_change_of_what_rows_go_through_is_another_store(file, monkeypatch, step):
    write(file, 10)
    opened(file)
    whole, changed = Path.read_bytes, Path(sys.modules[step.__module__].__file__)

    def read(path):
        return whole(path) + b"# other\n" * (path == changed)

    monkeypatch.setattr(Path, "read_bytes", read)
    opened(file)
    assert len(list((cache_root() / "problems").iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "gone", "unfinished", "no note"])
def test_a_half_written_store_is_noticed_and_mended(file, small_parts, damage):
    whole = opened(file)
    expected, files = problems(whole), part_files()
    done = files[0].parent / "done.json"
    if damage == "cut":
        os.truncate(files[3], files[3].stat().st_size - 100)
    elif damage == "gone":
        files[2].unlink()
    elif damage == "unfinished":
        for part in files[4:]:
            part.unlink()
        done.unlink()
        (files[0].parent / "part.tmp").write_bytes(b"ARROW1")
    else:
        done.write_text("{")
    mended = opened(file)
    assert problems(mended) == expected and mended.rows == whole.rows
    assert mended.skipped == whole.skipped and mended.first_skipped == whole.first_skipped


PREPARE = """
import sys
from envs.tasks.storage import store
store.PART_ROWS = 20
from envs.tasks.config import FieldsConfig, FilesConfig
from envs.tasks.rows import load_converter
from envs.tasks.rows import find_sources
taco = load_converter("envs.tasks.loaders.taco.problem", FieldsConfig(), "task.rows")
((source,),) = find_sources(taco, sys.argv[1], "task.path", FilesConfig()).values()
store.prepare_store(source, store.SizeLimits(1000, 100_000_000))
"""


def test_a_killed_conversion_goes_on_and_loses_and_doubles_nothing(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    write(file, 400)
    kills = 0
    for wanted in (2, 7):
        process = subprocess.Popen([sys.executable, "-c", PREPARE, str(file)], cwd=ROOT)
        while len(part_files()) < wanted and process.poll() is None:
            time.sleep(0.002)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert kills == 2
    monkeypatch.setattr(store_module, "PART_ROWS", 20)
    survived = {part.name: part.stat().st_mtime_ns for part in part_files()[:-1]}
    store = opened(file)
    after = {part.name: part.stat().st_mtime_ns for part in part_files()}
    assert survived.items() <= after.items()  # what was there was not made again
    from_rows, skipped = load_problems(TACO, file)
    assert [problem.name for problem in problems(store)] == [p.name for p in from_rows]
    assert (store.rows, store.skipped) == (400, skipped)


@pytest.mark.slow  # two processes that import everything
def test_two_processes_prepare_one_store(tmp_path):
    file = tmp_path / "rows.jsonl"
    write(file, 200)
    command = [sys.executable, "-c", PREPARE, str(file)]
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(part_files()) == 10
    assert json.loads((part_files()[0].parent / "done.json").read_text()).keys() == {
        part.name for part in part_files()
    }
