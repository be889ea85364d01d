"""The run folder: never overwritten, never half a table, readable whatever happened."""

import errno
import json
import os

import pandas as pd
import pytest

from experiments.errors import UserError
from experiments.run_dir import checkpoints
from experiments.run_dir.records import Records
from tests.experiments.compose import config as config_of


@pytest.fixture
def config(tmp_path):
    return config_of("algo=spo", f"output_dir={tmp_path}")


def test_two_runs_of_the_same_second_have_folders_of_their_own(config):
    folders = {Records(config).folder for _ in range(3)}
    assert len(folders) == 3


def test_a_run_says_which_study_started_it_and_keeps_it_when_resumed_by_hand(config, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_STUDY", "study-s")
    records = Records(config)
    records.finish("interrupted")
    monkeypatch.delenv("SPO_BENCH_STUDY")
    assert Records(config).info["study"] is None
    assert Records(config, records.folder).info["study"] == "study-s"


def test_rows_are_on_disk_before_any_table_is(config):
    records = Records(config)
    records.step({"step": 1, "reward_mean": 0.5})
    assert json.loads((records.folder / "metrics.jsonl").read_text()) == {
        "step": 1,
        "reward_mean": 0.5,
    }
    assert json.loads((records.folder / "run.json").read_text())["status"] == "running"
    records.finish("failed", "SandboxError: the engine is gone")
    info = json.loads((records.folder / "run.json").read_text())
    assert (info["status"], info["error"]) == ("failed", "SandboxError: the engine is gone")
    assert info["ended"]
    assert len(pd.read_parquet(records.folder / "metrics.parquet")) == 1
    assert not list(records.folder.glob(".*"))


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_costs_no_rows(config, monkeypatch):
    records = Records(config)
    records.step({"step": 1, "reward_mean": 0.5})
    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="No space"):
        records.finish("finished")
    records.finish("failed", "the disk is full")
    assert json.loads((records.folder / "metrics.jsonl").read_text())["step"] == 1
    assert not list(records.folder.glob(".*"))
    monkeypatch.undo()
    resumed = Records(config, records.folder, 1)
    assert resumed.metrics == [{"step": 1, "reward_mean": 0.5}]


def test_each_evaluation_is_a_part_of_its_own_and_all_are_one_table(config):
    records = Records(config)
    records.evaluation(0, [{"step": 0, "problem": "a", "program": ""}])
    first = (records.folder / "evals.parquet").iterdir().__next__()
    written = first.stat().st_mtime_ns
    records.evaluation(50, [{"step": 50, "problem": "a", "program": "x"}])
    assert first.stat().st_mtime_ns == written
    table = pd.read_parquet(records.folder / "evals.parquet")
    assert list(table["step"]) == [0, 50]
    assert list(table["program"]) == ["", "x"]


def test_a_resumed_run_cuts_evaluations_after_its_checkpoint_at_every_temperature(config):
    records = Records(config)
    row = {"problem": "a", "program": ""}
    for step in (0, 1, 2):
        if step:
            records.step({"step": step, "reward_mean": 0.5})
        records.evaluation(step, [row | {"step": step}])
        for temperature in (0.0, 0.25):
            records.evaluation(step, [row | {"step": step}], temperature)
    records.finish("interrupted")

    def further():
        table = pd.read_parquet(records.folder / "further_evals.parquet")
        return sorted(zip(table["step"], table["temperature"], strict=True))

    pairs = [(0, 0.0), (0, 0.25), (1, 0.0), (1, 0.25), (2, 0.0), (2, 0.25)]
    assert further() == pairs
    resumed = Records(config, records.folder, 1)
    assert further() == pairs[:4]
    assert list(pd.read_parquet(records.folder / "evals.parquet")["step"]) == [0, 1]
    resumed.finish("interrupted")


def test_a_checkpoint_is_there_when_it_is_whole_and_others_are_forgotten(config):
    records = Records(config)
    places = records.folder / "checkpoints"
    with pytest.raises(OSError, match="No space"), records.checkpoint("step-5", 5, 2) as folder:
        (folder / "half").write_text("of it")
        full()
    assert list(places.iterdir()) == []
    for step, name in enumerate(("best", "step-1", "step-2", "step-3", "step-3"), 1):
        with records.checkpoint(name, step, 2) as folder:
            (folder / "weights").write_text(str(step))
    assert {place.name for place in places.iterdir()} == {"best", "step-2", "step-3"}
    assert (places / "step-3" / "weights").read_text() == "5"
    info = json.loads((records.folder / "run.json").read_text())
    assert info["checkpoints"] == {"best": 1, "step-2": 3, "step-3": 5}


@pytest.mark.parametrize("former", [False, True])
def test_a_checkpoint_whose_run_was_killed_just_before_its_rename_is_used(config, former):
    records = Records(config)
    records.step({"step": 1, "reward_mean": 0.5})
    hidden, place = (records.folder / "checkpoints" / name for name in (".final", "final"))
    for folder in (hidden, place) if former else (hidden,):
        folder.mkdir(parents=True)
        checkpoints.write(folder, {"step": 1 if folder == hidden else 0}, {})
    (records.folder / "checkpoints" / ".half").mkdir()
    records.finish("interrupted")
    state = checkpoints.latest(records.folder, pytest.fail)
    assert state["folder"] == hidden
    resumed = Records(config, records.folder, 1, state["folder"])
    assert resumed.info["checkpoints"] == {"final": 1}
    assert [path.name for path in place.parent.iterdir()] == ["final"]


def test_provenance_is_complete(config, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    info = Records(config).info
    assert info["visible_gpus"] == "3"
    assert info["seed"] == 0
    assert info["versions"]["torch"].startswith("2.13.0")
    assert info["hardware"]["cpus"] >= 1
    assert info["hardware"]["cpu"] and info["hardware"]["instructions"]
    assert info["algo"] == "spo"


def test_an_unusable_output_folder_is_one_line(config, tmp_path):
    (tmp_path / "file").write_text("")
    config.output_dir = str(tmp_path / "file")
    with pytest.raises(UserError, match=r"output_dir=.*choose a writable folder"):
        Records(config)
