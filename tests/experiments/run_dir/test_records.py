"""The run folder: never overwritten, never half a table, readable whatever happened."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments.config.resume import is_finished
from experiments.errors import UserError
from experiments.run_dir.records import Records
from tests.compose import options_of, run_config


@pytest.fixture
def config(tmp_path):
    return run_config(algo=options_of("spo", name="spo"), output_dir=str(tmp_path))


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


def test_a_full_disk_costs_neither_rows_nor_the_last_word(config, monkeypatch):
    records = Records(config)
    records.step({"step": 1, "reward_mean": 0.5})
    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="No space"):
        records.describe(more="facts")
    size = (records.folder / "run.json").stat().st_size
    records.finish("failed", "the disk is full" * 30)
    assert (records.folder / "run.json").stat().st_size == size  # not a byte more was needed
    info = json.loads((records.folder / "run.json").read_text())
    assert (info["status"], info["error"]) == ("failed", "the disk is full" * 30)
    assert json.loads((records.folder / "metrics.jsonl").read_text())["step"] == 1
    assert not list(records.folder.glob(".*"))


def test_a_finished_run_whose_metrics_cannot_be_written_has_failed(config, monkeypatch):
    records = Records(config)
    records.step({"step": 1, "reward_mean": 0.5})
    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="No space"):
        records.finish("finished")
    assert json.loads((records.folder / "run.json").read_text())["status"] == "failed"
    assert (records.folder / "metrics.jsonl").exists()


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
            records.further_evaluation(step, temperature, [row | {"step": step}])
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


def test_a_finished_run_stays_finished_until_a_further_step_is_done(config):
    config = replace(config, steps=1)
    records = Records(config)
    records.step({"step": 1, "reward_mean": 0.5})
    records.finish("finished")
    before = [(records.folder / name).read_text() for name in ("run.json", "config.yaml")]
    longer = replace(config, steps=2)

    def now():
        info = json.loads((records.folder / "run.json").read_text())
        return info["status"], len(info["resumed"]), is_finished(records.folder, longer)

    loading = Records(longer, records.folder, 1)
    assert now() == ("finished", 0, False)
    loading.finish("interrupted")
    assert [(records.folder / n).read_text() for n in ("run.json", "config.yaml")] == before
    assert len(pd.read_parquet(records.folder / "metrics.parquet")) == 1
    further = Records(longer, records.folder, 1)
    further.step({"step": 2, "reward_mean": 0.5})
    assert now() == ("running", 1, False)
    further.finish("finished")
    assert now() == ("finished", 1, True)
    cut = Records(longer, records.folder, 1)  # from an earlier checkpoint
    assert now()[:2] == ("running", 2)
    cut.finish("interrupted")


def test_the_problems_that_are_asked_are_a_table_of_names_and_prompts(config):
    records = Records(config)
    records.problems({"problem": f"mini/{i}", "prompt": "Print <b>.\n"} for i in range(3))
    table = pd.read_parquet(records.folder / "problems.parquet")
    assert list(table["problem"]) == ["mini/0", "mini/1", "mini/2"]
    assert set(table["prompt"]) == {"Print <b>.\n"}


def test_a_checkpoint_is_there_when_it_is_whole(config):
    records = Records(config)
    with pytest.raises(OSError, match="No space"), records.checkpoint("step-5", 5) as folder:
        (folder / "half").write_text("of it")
        full()
    assert list((records.folder / "checkpoints").iterdir()) == []
    with records.checkpoint("step-6", 6) as folder:
        (folder / "whole").write_text("")
    assert (records.folder / "checkpoints" / "step-6" / "whole").is_file()
    assert json.loads((records.folder / "run.json").read_text())["checkpoints"] == {"step-6": 6}


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
