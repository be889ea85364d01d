"""The batches of a run that kept them, through other algorithms: the loss is all that differs."""

import pandas as pd
import pytest

from experiments.engines.hf import HFEngine
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.programs import JudgingCosts
from experiments.replay.sample_log import FrozenBatches
from experiments.run_dir.ledger import Ledger
from experiments.trainer import train
from tests.experiments.compose import config as config_of
from tests.experiments.compose import finished
from tests.experiments.config.test_resume import SMALL, assert_same, go_on

FEW = [*SMALL, "steps=2", "eval.every=0", "eval.kl_samples=0"]


def run(root, *overrides):
    return finished(*FEW, f"output_dir={root}", *overrides)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run whose batches hold the data set's programs beside its own responses."""
    given = ("algo=spo", "algo.q0=group_soft", "train.offline_share=0.25")
    return run(tmp_path_factory.mktemp("recorded"), *given, "train.keep_samples=true")


def test_two_passes_are_the_same_bits_and_write_and_judge_nothing(recorded, tmp_path, monkeypatch):
    written = []
    generate = HFEngine.generate

    def counted(engine, request, *given):
        written.append(len(request.prompts))
        return generate(engine, request, *given)

    monkeypatch.setattr(HFEngine, "generate", counted)
    first, second = (run(tmp_path / n, "algo.q0=group_soft", *frozen(recorded)) for n in "ab")
    assert_same(second, first)
    assert written == [2] * 4  # the evaluations at both ends of both
    metrics, before = (pd.read_parquet(r / "metrics.parquet") for r in (first, recorded))
    told = ["reward_mean", "offline_share", "response_tokens_mean", "loss"]
    pd.testing.assert_frame_equal(metrics[told], before[told])  # the same algorithm: the same run
    assert metrics["budget/generated_tokens"].tolist() == [0, 0]
    assert weights(first) == weights(recorded)
    charged = metrics["budget/judged_programs"]
    assert charged.tolist() == metrics["budget/replayed_programs"].tolist()
    assert charged.iloc[-1] > 0


def frozen(recorded):
    return ["experiment=frozen", f"replay.from_runs=[{recorded}]", "engine.logprob_check_every=0"]


def weights(folder):
    return (folder / "checkpoints" / "final" / "model.safetensors").read_bytes()


def test_it_goes_on_where_it_stopped(recorded, tmp_path):
    folder = run(tmp_path, "algo.q0=group_soft", *frozen(recorded), "steps=1")
    assert weights(folder) != weights(recorded)
    assert go_on(folder, "steps=2").status == "finished"
    assert weights(folder) == weights(recorded)
    metrics = pd.read_parquet(folder / "metrics.parquet")
    programs = sample_log.read_all(recorded).select(["problem", "program"]).to_pandas()
    judged = programs[programs["program"] != ""].drop_duplicates()
    assert metrics["budget/replayed_programs"].iloc[-1] == len(judged)


def test_a_folder_without_its_configuration_is_refused(recorded, tmp_path):
    (tmp_path / "samples").symlink_to(recorded / "samples")
    config = config_of(*FEW, *frozen(tmp_path), f"output_dir={tmp_path / 'out'}")
    outcome = train(config)
    assert (outcome.status, outcome.expected) == ("failed", True)
    assert "not a whole run folder" in outcome.error


def open_recorded(recorded, *overrides, prompts=(), accepts_missing_logprobs=True):
    given = ("experiment=frozen", f"replay.from_runs=[{recorded}]", *overrides)
    config = config_of(*FEW, *given)
    return FrozenBatches(
        config,
        prompts,
        "judge",
        JudgingCosts(Ledger(), "replayed_programs"),
        accepts_missing_logprobs,
    )


def test_what_does_not_fit_is_refused_in_a_line(recorded):
    with pytest.raises(UserError, match="batch 3 is not recorded; use steps=2"):
        open_recorded(recorded, "steps=3")
    with pytest.raises(UserError, match="is not in this run's train split"):
        open_recorded(recorded)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["algo=grpo"], "without rollout log-probs, which algo=grpo needs"),
        (["algo=spo", "train.group_size=2"], "its train.group_size is 4, but 2 here"),
        (["algo=spo", "train.temperature=0.7"], "its train.temperature is 1.0, but 0.7 here"),
        (["algo=spo", "judge.output_limit_mb=5"], "judged by another judge"),
    ],
)
def test_so_is_what_shows_in_a_batch(recorded, tmp_path, overrides, told):
    given = [*frozen(recorded), f"output_dir={tmp_path}", "eval.samples=1", *overrides]
    config = config_of(*FEW, *given)
    outcome = train(config)
    assert (outcome.status, outcome.expected) == ("failed", True)
    assert told in outcome.error
