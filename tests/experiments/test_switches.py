"""What is switched off changes no bit, and what is only kept changes none either."""

import json

import pandas as pd

from tests.experiments.compose import assert_same, finished
from tests.experiments.config.test_resume import SMALL, go_on

OFF = [
    *("train.lag=0", "train.sync_every=1", "train.minibatches=1", "train.epochs=1"),
    *("train.correction=none", "train.replay_share=0", "train.offline_share=0"),
]
KEPT = ["train.keep_samples=true", "train.keep_best=true", "train.checkpoint_every=1"]


def run(root, *overrides):
    given = [*SMALL, "steps=3", "eval.every=1", "eval.split=tune", f"output_dir={root}"]
    return finished(*given, "algo=grpo", *overrides)


def test_what_is_off_or_only_kept_changes_no_bit_and_the_best_checkpoint_stays(tmp_path):
    plain = run(tmp_path / "plain")
    folder = run(tmp_path / "kept", *OFF, *KEPT, "replay.capacity=7", "replay.sampling=balanced")
    assert_same(plain, folder, "metrics")
    evals = pd.read_parquet(folder / "evals.parquet")
    scores = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean().loc[1:]
    info = json.loads((folder / "run.json").read_text())
    assert info["checkpoints"]["best"] == scores.idxmax()
    assert (folder / "checkpoints" / "best" / "model.safetensors").is_file()
    assert sorted(info["checkpoints"]) == ["best", "final", "step-2"]
    assert go_on(folder, "steps=4").status == "finished"
    assert (folder / "checkpoints" / "best").is_dir()
