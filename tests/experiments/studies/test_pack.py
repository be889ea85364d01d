"""A packed study and an archive of slim run folders give the page and tables of the run folders."""

import json
import shutil
import subprocess
import tarfile
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
import yaml

from analysis.report import main as report
from experiments.studies.pack import main as pack
from experiments.studies.write import main as write
from tests.experiments.studies.packed_study import STUDY, make_repository, make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory, make_run, add_further):
    return make_study(tmp_path_factory.mktemp("study"), make_run, add_further)


@pytest.fixture(scope="module")
def packed(tmp_path_factory, study):
    return make_repository(tmp_path_factory.mktemp("repository"), study)


def report_in_this_process(command, **_):
    """`subprocess.run` of the report, without the seconds that a new process takes to start."""
    assert command[1:3] == ["-m", "analysis.report"]
    return subprocess.CompletedProcess(command, report(command[3:]))


def page_of(study, folder, out):
    assert write([f"study={study.parent}/s.yaml", f"folder={folder}", f"out={out}"]) == 0
    return out.read_text(), out.with_suffix(".svg").read_text()


def test_the_page_from_counts_is_that_of_the_run_folders(study, packed, tmp_path):
    page, figure = page_of(study, study, tmp_path / "page.md")
    assert page_of(study, packed, tmp_path / "page.md") == (page, figure)
    assert page.count("pass@10 (T=1): +") == 1 and "Area under the learning curve" in page
    assert "**held" in page and "| – |" not in page.partition("## Result")[2].partition("##")[2]
    beside = packed.with_suffix(".md").read_text()
    link = (
        " They follow from the counts in [study-s/](study-s/), as `make check-results` shows. "
        "`make report RUNS=docs/results/study-s OUT=FOLDER` writes that report from the counts, "
        "without programs."
    )
    assert beside.replace(link, "", 1).replace("study-s.svg", "page.svg") == page


def test_a_packed_study_is_small_and_names_what_made_it(packed):
    files = {file.name for file in packed.iterdir()}
    tables = {f"{name}.parquet" for name in ("counts", "runs", "metrics", "training")}
    assert files == {"arms.json", "contrasts.json", "s.yaml", "SHA256SUMS"} | tables
    counts = pd.read_parquet(packed / "counts.parquet")
    evaluations = counts[["step", "temperature", "main"]].drop_duplicates().values.tolist()
    main = [[step, 0.4, True] for step in (0, 10, 20)]
    assert evaluations == [*main, [0, 1.0, False], [20, 1.0, False]]
    training = pd.read_parquet(packed / "training.parquet")
    assert training.groupby("run")["step"].agg(list).tolist() == [list(range(1, 21))] * 4
    assert {"reward_mean", "loss", "kl_ref"} < set(training) and "time/total_s" not in training
    runs = pd.read_parquet(packed / "runs.parquet")
    assert runs[["run", "arm", "seed"]].values.tolist()[-1] == ["spo-1", "spo-x_1.5", 1]
    assert json.loads(runs["info"][0])["commit"] == "0123abc" and "output_dir" in runs["config"][0]
    assert {each["run"] for each in json.loads((packed / "arms.json").read_text())} == {
        *("ppo-0", "ppo-1", "ppo-2", "spo-0", "spo-1"),
    }


def test_of_the_places_of_rows_and_runs_only_the_names_are_packed(study, tmp_path):
    folder, rows, runs = tmp_path / "study-s", f"{tmp_path}/rows.jsonl", f"{tmp_path}/runs"
    shutil.copytree(study, folder)
    for file in folder.glob("*/config.yaml"):
        config = yaml.safe_load(file.read_text())
        config.setdefault("task", {})["path"], config["output_dir"] = rows, runs
        file.write_text(yaml.safe_dump(config))
    arms = folder / "arms.json"
    arms.write_text(arms.read_text().replace("[]", f'["task.path={rows}", "output_dir={runs}"]'))
    out = tmp_path / "packed"
    assert pack([f"study={study.parent}/s.yaml", f"folder={folder}", f"out={out}"]) == 0
    config = pd.read_parquet(out / "runs.parquet")["config"]
    assert all(yaml.safe_load(text)["task"]["path"] == "rows.jsonl" for text in config)
    text = (out / "arms.json").read_text()
    assert all(yaml.safe_load(text)["output_dir"] == "runs" for text in config)
    assert "task.path=rows.jsonl" in text and "output_dir=runs" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("ending", [".tar.zst", ".tar.gz"])
def test_an_archive_gives_the_same_tables_byte_for_byte(ending, study, tmp_path, monkeypatch):
    process = SimpleNamespace(run=report_in_this_process)
    monkeypatch.setattr("experiments.studies.run.subprocess", process)
    archive, out = tmp_path / f"slim{ending}", f"out={tmp_path / 'packed'}"
    given = [f"study={study.parent}/s.yaml", f"folder={study}", out, f"archive={archive}"]
    assert pack(given) == 0
    kept = study.rename(study.parent / "kept")
    try:
        compression = {".tar.zst": "zstd", ".tar.gz": "gzip"}[ending]
        with (
            pa.CompressedInputStream(str(archive), compression) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            tar.extractall(study.parent, filter="data")
        assert not list(study.rglob("checkpoints"))
        if ending == ".tar.zst":  # the same files, so once is enough
            page = page_of(study, study, tmp_path / "p.md")  # with its report: an archive has none
            tables = sorted(file.name for file in (kept / "report").glob("*.csv"))
            assert len(tables) > 10
            for name in tables:
                assert (study / "report" / name).read_bytes() == (
                    kept / "report" / name
                ).read_bytes(), name
            assert page == page_of(study, kept, tmp_path / "p.md")
        else:
            runs = sorted(path.name for path in study.iterdir() if path.is_dir())
            assert runs == ["ppo-0", "ppo-1", "spo-0", "spo-1"]
    finally:
        study.rename(tmp_path / "unpacked")
        kept.rename(study)


def test_weights_come_without_the_optimisers_state(study, tmp_path):
    archive = tmp_path / "whole.tar.gz"
    given = [f"study={study.parent}/s.yaml", f"folder={study}", f"out={tmp_path}/packed"]
    assert pack([*given, f"archive={archive}", "weights=true"]) == 0
    with tarfile.open(archive) as tar:
        weights = [name for name in tar.getnames() if "checkpoints" in name]
    assert weights == [
        f"study-s/{run}/checkpoints/final/model.safetensors"
        for run in ("ppo-0", "ppo-1", "spo-0", "spo-1")
    ]


def test_mistakes_are_one_line(study, tmp_path, capsys):
    given = [f"folder={study}", f"out={tmp_path}/packed"]
    (tmp_path / "t.yaml").write_text(STUDY.replace("metric: time", "metric: edit_distance"))
    assert pack([f"study={tmp_path}/t.yaml", *given]) == 2
    assert "edit_distance of its claims or order_by" in capsys.readouterr().err
    own = f"study={study.parent}/s.yaml"
    assert pack([own, *given, "archive=x.zip"]) == 2
    assert "archive=x.zip: write a name that ends in .tar.gz or" in capsys.readouterr().err
    assert pack([own, f"folder={tmp_path}", f"out={tmp_path}/packed"]) == 2
    assert "arms.json is missing" in capsys.readouterr().err
    assert not (tmp_path / "packed").exists()
    (tmp_path / "arms.json").write_text("[")
    assert pack([own, f"folder={tmp_path}", f"out={tmp_path}/packed"]) == 2
    assert "arms.json is damaged" in capsys.readouterr().err
    for command, out in ((pack, "t.yaml/packed"), (write, "t.yaml/page.md")):
        assert command([own, f"folder={study}", f"out={tmp_path}/{out}"]) == 2
        assert f"{tmp_path}/t.yaml is a file" in capsys.readouterr().err
