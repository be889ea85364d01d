"""The run folder: never overwritten, never half a table, readable whatever happened."""

import json

import pandas as pd
import pytest

from algorithms.spo import SPOConfig
from experiments.config import RunConfig
from experiments.errors import UserError
from experiments.records import Records


@pytest.fixture
def config(tmp_path):
    return RunConfig(algo=SPOConfig(), output_dir=str(tmp_path))


def test_two_runs_of_the_same_second_have_folders_of_their_own(config):
    folders = {Records(config).folder for _ in range(3)}
    assert len(folders) == 3


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
    assert not list(records.folder.glob("*.tmp"))


def test_provenance_is_complete(config):
    info = Records(config).info
    assert info["seed"] == 0
    assert info["versions"]["torch"].startswith("2.13.0")
    assert info["hardware"]["cpus"] >= 1
    assert info["algo"] == "spo"


def test_an_unusable_output_folder_is_one_line(config, tmp_path):
    (tmp_path / "file").write_text("")
    config.output_dir = str(tmp_path / "file")
    with pytest.raises(UserError, match=r"output_dir=.*choose a folder"):
        Records(config)
