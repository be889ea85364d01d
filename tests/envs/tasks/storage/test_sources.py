"""Where rows come from: files, folders, and the layout of the hub's data sets."""

import json

import pytest

from envs.tasks import open_task
from envs.tasks.rows import find_sources
from tests.envs.tasks import contest_rows
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
DEEPCODER = converter_of("deepcoder")
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


def test_files_of_one_split_may_have_other_columns_and_a_resumed_stream_passes_over_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    tables = {
        "taco/train-00000-of-00001": [contest_rows.deepcoder_taco(i) for i in range(3)],
        "primeintellect/train-00000-of-00001": [
            contest_rows.deepcoder_primeintellect(i) for i in range(3, 7)
        ],
        "lcbv5/test-00000-of-00001": [contest_rows.deepcoder_lcb(7, starter_code="x = 1")],
    }
    for name, rows in tables.items():
        (tmp_path / name).parent.mkdir()
        pandas.DataFrame(rows).to_parquet(tmp_path / f"{name}.parquet")
    layout = config("deepcoder", None).files
    found = find_sources(DEEPCODER, f"file://{tmp_path}", "task.path", layout)
    (train,) = found["train"]
    rows = list(train.read(0))
    assert len(rows) == train.rows() == 7 and "starter_code" not in rows[0]
    for first in (2, 4, 5, 7):
        assert list(train.read(first)) == rows[first:]
    on_disk = find_sources(DEEPCODER, str(tmp_path), "task.path", layout)
    assert [source.rows() for source in on_disk["train"]] == [4, 3]
    assert len(on_disk["test"]) == 1


def test_a_json_array_is_streamed(tmp_path):
    rows = [contest_rows.taco_verified(i) for i in range(3)]
    (tmp_path / "taco_verified.json").write_text(json.dumps(rows))
    layout = config("taco_verified", None).files
    for path in (f"file://{tmp_path}", str(tmp_path)):
        ((source, *_), *_) = find_sources(TACO, path, "task.path", layout).values()
        assert list(source.read(0)) == rows and list(source.read(2)) == rows[2:]
        assert source.rows() is None


def test_a_hub_name_without_a_commit_names_the_newest_one(monkeypatch):
    from types import SimpleNamespace

    import huggingface_hub

    def dataset_info(api, name, timeout):
        assert name == "BAAI/TACO" and timeout
        return SimpleNamespace(sha="1" * 40)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    for path in ("hf://datasets/BAAI/TACO", "hf://datasets/BAAI/TACO@main"):
        with pytest.raises(ValueError) as error:
            find_sources(TACO, path, "task.path", LAYOUT)
        assert str(error.value).endswith("now is hf://datasets/BAAI/TACO@" + "1" * 40)


def test_a_hub_name_without_a_commit_is_refused():
    for path in ("hf://datasets/BAAI/TACO", "hf://datasets/BAAI/TACO@main"):
        with pytest.raises(ValueError, match=r"task\.path=.*@COMMIT"):
            find_sources(TACO, path, "task.path", LAYOUT)
    assert list(find_sources(TACO, AT_THE_HUB, "task.path", LAYOUT)) == [
        "train",
        "validation",
        "test",
        "choose",
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
