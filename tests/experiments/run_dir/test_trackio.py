"""trackio without a network: what it wrote is read back through its own API."""

import math
import sys

import pandas as pd
import pytest

from experiments.config.composition import config_of
from experiments.trainer import train
from tests.experiments.run_dir.test_loggers import SMALL


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """trackio's storage in an empty folder, which it names once, when it is imported."""
    if "trackio" in sys.modules:
        pytest.skip("trackio was imported before, with the user's own folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            patch.delenv(name, raising=False)
        pytest.importorskip("trackio")
        yield pytest.importorskip("trackio.sqlite_storage").SQLiteStorage


def test_a_run_that_goes_on_is_read_back_from_trackio_as_one_run(tmp_path, storage, capfd):
    given = [*SMALL, f"output_dir={tmp_path}/out", "logger=trackio"]
    folder = train(config_of([*given, "steps=1"])).folder
    outcome = train(config_of(given), folder)
    assert outcome.status == "finished", outcome.error
    assert storage.get_runs("spo-bench") == [folder.name]
    assert storage.get_run_config("spo-bench", folder.name)["algo"]["name"] == "grpo"
    rows = storage.get_logs("spo-bench", folder.name)
    metrics = pd.read_parquet(folder / "metrics.parquet").set_index("step")
    logged = {row["step"]: row for row in rows if "train/loss" in row}
    assert sorted(logged) == list(metrics.index) == [1, 2]
    for step, row in logged.items():
        assert row["train/reward_mean"] == metrics.loc[step, "reward_mean"]
        assert row["budget/generated_tokens"] == metrics.loc[step, "budget/generated_tokens"]
    evaluated = [row for row in rows if "eval/pass@1" in row]
    assert [row["step"] for row in evaluated] == [0, 1, 2] and all(
        math.isfinite(row["eval/pass@1"]) for row in evaluated
    )
    assert [row["status"] for row in rows if "status" in row] == ["finished", "finished"]
    assert "Trackio" not in capfd.readouterr().out
