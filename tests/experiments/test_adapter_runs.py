"""Whole runs with an adapter: they learn, go on after a stop to the same bits, and are exported."""

import json

import pandas as pd
import pytest
import torch

from experiments import trainer
from experiments.config import composition
from experiments.errors import UserError
from experiments.export import export
from experiments.policy import loading, lora
from tests.experiments.compose import config as config_of
from tests.experiments.compose import finished
from tests.experiments.config.test_resume import SMALL

LORA = ["model.adapter=lora", "model.adapter_rank=8"]


def test_a_stopped_run_goes_on_to_the_same_bits_and_is_exported(tmp_path):
    few = [*SMALL, *LORA, "task=sums", "train.sync_every=2", "steps=4"]
    whole = finished(*few, f"output_dir={tmp_path / 'whole'}")
    half = trainer.train(config_of(*few, f"output_dir={tmp_path / 'half'}", "steps=3"))
    went_on = trainer.train(composition.resumed_config(half.folder, ["steps=4"]), half.folder)
    assert went_on.status == "finished", went_on.error
    assert pd.read_parquet(half.folder / "metrics.parquet")["step"].tolist() == [1, 2, 3, 4]
    metrics = [pd.read_parquet(f / "metrics.parquet") for f in (whole, half.folder)]
    learnt = ["loss", "grad_norm", "reward_mean", "sample_lag_max"]
    pd.testing.assert_frame_equal(metrics[0][learnt], metrics[1][learnt], check_exact=True)
    assert all(of["mismatch/mean"].max() < 1e-4 for of in metrics)
    files = {file.name for file in (whole / "checkpoints" / "final").iterdir()}
    assert "adapter_model.safetensors" in files and "model.safetensors" not in files

    export(whole, out := tmp_path / "exported")
    config = config_of(*few).model
    base, _ = loading.load(config)
    policy = lora.adapted(base, config, seed=0)
    lora.load(policy, whole / "checkpoints" / "final")
    merged, _ = loading.load(config_of(f"model.path={out}").model)
    ids = torch.arange(5, 60).unsqueeze(0)
    with torch.no_grad():
        assert (merged.model(ids).logits - policy.model(ids).logits).abs().max() < 1e-4
        assert (merged.model(ids).logits - base.model(ids).logits).abs().max() > 1e-2
    assert json.loads((whole / "run.json").read_text())["status"] == "finished"


def test_whole_weights_need_no_export(tmp_path):
    folder = finished(*SMALL, "task=sums", f"output_dir={tmp_path}", "steps=1")
    with pytest.raises(UserError, match="no checkpoint of an adapter"):
        export(folder, tmp_path / "out")


@pytest.mark.slow
def test_spo_learns_with_an_adapter_in_twenty_steps(tmp_path):
    few = ["steps=20", "eval.every=0", "eval.samples=10", "eval.k=[1]", "eval.kl_samples=1"]
    few += ["task.choose_problems=60", "task.test_problems=60", "sandbox=embedded"]
    folder = finished("algo=spo", "model.adapter=lora", *few, f"output_dir={tmp_path}")
    evals = pd.read_parquet(folder / "evals.parquet")
    right = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean()
    assert right[20] > 2 * right[0] > 0
