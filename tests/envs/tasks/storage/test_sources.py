"""Where rows come from: files, folders, and the layout of the hub's data sets."""

import json

import pytest

from envs.tasks import open_task
from envs.tasks.storage.sources import find_sources
from tests.envs.tasks.dataset_rows import (
    code_contests_row,
    config,
    converter_of,
    every_problem,
    names,
    taco_row,
    write,
)

TACO = converter_of("taco")
LAYOUT = config("taco", None).files
AT_THE_HUB = "hf://datasets/BAAI/TACO@" + "0" * 40


@pytest.fixture
def hub(tmp_path):
    """A folder with the files of TACO and CodeContests where the hub has them."""
    pandas = pytest.importorskip("pandas")
    for folder in ("taco/ALL", "code_contests/data"):
        (tmp_path / folder).mkdir(parents=True)
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
    for name, rows in tables.items():
        pandas.DataFrame(rows).to_parquet(tmp_path / f"{name}.parquet")
    return tmp_path


def test_the_hub_layout_is_streamed_by_split(hub):
    task = open_task(config("taco", f"file://{hub}/taco"))
    assert len(task.test) == 10
    assert len(names(every_problem(task))) == 70
    task = open_task(config("code_contests", f"file://{hub}/code_contests"))
    assert [len(split) for split in (task.train, [*task.tune, *task.choose], task.test)] == [
        9,
        1,
        1,
    ]
    assert task.train[0].solutions == ("print(input())",)


def test_the_hub_and_its_files_give_the_same_problems(hub):
    streamed = open_task(config("taco", f"file://{hub}/taco"))
    from_files = open_task(config("taco", f"{hub}/taco"))

    def known(problems):
        return sorted((p.statement, p.hash, p.solutions) for p in problems)

    for split in ("train", "tune", "choose", "test"):
        assert known(getattr(streamed, split)) == known(getattr(from_files, split))


def test_a_folder_laid_out_as_the_hub_is_read_as_such(hub):
    (hub / "taco" / "EASY").mkdir()
    easy = hub / "taco" / "EASY" / "train-00000-of-00001.parquet"
    easy.write_bytes((hub / "taco" / "ALL" / "train-00000-of-00002.parquet").read_bytes())
    assert open_task(config("taco", f"{hub}/taco")).rows_read == 70


def test_a_crossing_reads_only_the_splits_that_it_uses(hub):
    (hub / "taco" / "ALL" / "train-00000-of-00002.parquet").write_bytes(b"never read")
    (hub / "code_contests" / "data" / "test-00000-of-00001.parquet").write_bytes(b"never read")
    paths = {"path": f"file://{hub}/code_contests", "test_path": f"file://{hub}/taco"}
    task = open_task(config("paper", **paths))
    assert [len(split) for split in (task.train, [*task.tune, *task.choose], task.test)] == [
        9,
        1,
        10,
    ]
    assert all(problem.name.startswith("taco/") for problem in task.test)


def test_a_stream_that_breaks_is_said_in_a_line(hub):
    (hub / "taco" / "ALL" / "test-00000-of-00001.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(ValueError) as error:
        open_task(config("taco", f"file://{hub}/taco"))
    assert f"task.path=file://{hub}/taco" in str(error.value) and "\n" not in str(error.value)


def test_a_hub_name_without_a_commit_is_refused():
    for path in ("hf://datasets/BAAI/TACO", "hf://datasets/BAAI/TACO@main"):
        with pytest.raises(ValueError, match=r"task\.path=.*@COMMIT"):
            find_sources(TACO, path, "task.path", LAYOUT)
    assert list(find_sources(TACO, AT_THE_HUB, "task.path", LAYOUT)) == [
        "train",
        "validation",
        "test",
    ]


def test_arrow_parquet_and_lines_hold_the_same_problems(tmp_path):
    pa = pytest.importorskip("pyarrow")
    rows = [taco_row(i) for i in range(40)]
    table = pa.Table.from_pylist(rows)
    write(tmp_path / "rows.jsonl", rows)
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    for name, writer in {"stream": pa.ipc.new_stream, "file": pa.ipc.new_file}.items():
        with writer(str(tmp_path / f"{name}.arrow"), table.schema) as sink:
            sink.write_table(table, max_chunksize=7)
    hashes = {
        open_task(config("taco", str(tmp_path / name))).data_hash
        for name in ("rows.jsonl", "rows.parquet", "stream.arrow", "file.arrow")
    }
    assert len(hashes) == 1


def test_a_file_is_known_by_its_content(tmp_path):
    one, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file in (one, other):
        write(file, [taco_row(0)])

    def identity(file):
        ((source,),) = find_sources(TACO, str(file), "task.path", LAYOUT).values()
        return source.identity

    assert identity(one) == identity(other)
    other.write_text(json.dumps(taco_row(1)) + "\n")
    assert identity(one) != identity(other)


@pytest.mark.parametrize("name", ["rows.csv", "empty"])
def test_what_holds_no_rows_is_said(tmp_path, name):
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=name):
        open_task(config("taco", str(tmp_path / name)))


def test_a_relative_path_that_leads_nowhere_is_given_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        find_sources(TACO, "assets/rows", "task.path", LAYOUT)
    expected = f"task.path=assets/rows: no such file or folder; looked for {tmp_path}/assets/rows"
    assert str(error.value) == expected
