"""Every file in conf/experiment/ composes, and those of the paper say what is known of it."""

import math
from pathlib import Path

import pytest

from tests.compose import options_of
from tests.experiments.compose import config

FILES = sorted((Path(__file__).resolve().parents[2] / "conf" / "experiment").glob("*.yaml"))
PAPER = [file for file in FILES if file.stem.startswith("paper")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_composes_and_names_its_command(file, tmp_path):
    given = []
    if file.stem == "frozen":  # it takes a run that kept its samples
        (tmp_path / "samples").mkdir()
        (tmp_path / "samples" / "step-00000001.arrow").touch()
        given = [f"replay.from_runs=[{tmp_path}]"]
    config(f"experiment={file.stem}", *given)
    command = file.read_text().splitlines()[1]
    assert command.startswith("# ") and ("make run" in command or file.stem in command)


@pytest.mark.parametrize("file", PAPER, ids=lambda file: file.stem)
def test_the_papers_setting(file):
    c = config(f"experiment={file.stem}")
    assert "Llama-3.1-8B-Instruct" in c.model.path and c.task.name == "paper"
    assert "code_contests" in c.task.path and "TACO" in c.task.test_path
    assert (c.steps * c.train.minibatches, c.train.sync_every) == (100_000, 10)
    assert (c.eval.samples, c.eval.temperature, c.eval.top_p) == (20, 0.4, 0.95)
    assert 10 in c.eval.k


@pytest.mark.parametrize("file", PAPER, ids=lambda file: file.stem)
def test_what_is_of_rlef(file):
    """2410.02089, appendix: PPO of the same group, not of SPO's paper."""
    c = config(f"experiment={file.stem}")
    t, reward = c.train, c.task.reward
    assert (t.prompts * t.group_size, t.prompts * t.group_size / t.minibatches) == (1024, 256)
    assert (t.epochs, t.temperature, t.weight_decay) == (1, 1.0, 0.1)
    assert t.warmup_steps == math.ceil(50 / t.minibatches)
    assert (reward.kind, reward.low, reward.high) == ("binary", -1.0, 1.0)
    assert c.algo.learning_rate == 2e-7
    if c.algo.name == "ppo":
        a = c.algo
        assert (a.kl_coef, a.clip_low, a.clip_high, a.value_clip) == (0.05, 0.2, 0.2, 0.2)
        assert (a.kl_mean, a.value_unit, a.lam, a.gamma) == (True, "turn", 1.0, 1.0)
    if c.algo.name == "spo":  # (high − low)/β as at our default rewards of 0 and 1
        assert (reward.high - reward.low) / c.algo.beta == 1 / options_of("spo").beta
        return
    assert (t.correction, t.correction_bounds) == ("truncated_current", (0.0, 1.0))


def test_the_papers_four_runs_differ_in_nothing_but_the_algorithm_and_its_data():
    """Nothing but that and the correction of the ratio, of which SPO has none."""
    known = {file.stem: config(f"experiment={file.stem}") for file in PAPER}
    assert len(known) == 4
    for each in known.values():
        assert (each.train.correction == "none") == (each.algo.name == "spo")
        each.train.correction = "none"
    half = known["paper_spo_half_online"]
    assert half.train.offline_share == 0.5
    half.train.offline_share = 0.0
    shared = [(one.task, one.model, one.train, one.eval, one.steps) for one in known.values()]
    assert all(each == shared[0] for each in shared)
