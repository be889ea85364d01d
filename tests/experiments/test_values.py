"""Values of cuts: their columns at an exact optimum, and a table that is killed and resumed."""

import json
import math
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from analysis.values import with_predictions
from experiments import values
from experiments.errors import UserError
from experiments.trainer import train
from tests.algorithms.tabular import BETA, RESPONSES, ROWS, world
from tests.experiments.compose import config
from tests.experiments.rollout.test_prefixes import sample_of


def predictions(samples, critic, logp, ref_logp, of_critic=None):
    """Those of a learner with such a critic (None: none) and these results of its passes."""
    needs, options = SimpleNamespace(critic=critic or "none"), SimpleNamespace(beta=0.5)
    parts = {"algorithm": SimpleNamespace(needs=needs, config=options), "pad": 0}
    parts |= {"logp": lambda tokens: logp, "ref_logp": lambda tokens: ref_logp}
    modules, model = SimpleNamespace(values=lambda _: of_critic), SimpleNamespace(device="cpu")
    learner = SimpleNamespace(**parts, modules=modules, model=model)
    return values.predictions(learner, samples)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_implied_values_of_an_optimal_table_are_the_soft_values_of_its_rows(share):
    """A reference that is uniform over the 27 responses; a prefix's continuations are all of them.

    The policy is ∝ e^{share · r/β}: half way to the optimum Q is off by .1 and more.
    """
    rewards = world()["rewards"]
    weights = (share * rewards / BETA).softmax(-1)
    alike = [rows.unsqueeze(-1) == rows for rows in ROWS.T]
    masses = torch.stack([*(same.double() @ weights for same in alike), weights], -1)
    logp, uniform = masses.log().diff(dim=-1), torch.full_like(masses[:, 1:], -math.log(3))
    pairs = zip(RESPONSES.tolist(), rewards.tolist(), strict=True)
    samples = [sample_of(tokens, reward) for tokens, reward in pairs]
    ahead = [
        [*(rewards[same[i]].tolist() for same in alike), [float(r)]] for i, r in enumerate(rewards)
    ]
    cuts = [[0, 1, 2, 3]] * 27
    known, text = predictions(samples, None, logp, uniform), lambda t, **_: "".join(map(str, t))
    rows = with_predictions(values.table_of(samples, cuts, known, (ahead, ahead), BETA, text))
    off = (rows["Q"] - rows["soft"]).abs().max()
    assert off < 1e-10 if share == 1 else off > 0.1
    assert rows["logp"].iloc[3::4].tolist() == pytest.approx(weights.log().tolist())
    assert rows["text"].iloc[:4].tolist() == ["", "0", "0", "0"]
    assert rows["soft"].iloc[3::4].tolist() == pytest.approx(rewards.tolist())
    assert rows["policy"].iloc[0] == pytest.approx(rewards.mean().item())


def test_a_critic_is_read_before_tokens_and_primes_model_after_them():
    samples = [sample_of((5, 6)), sample_of((5, 6, 7))]
    logp = torch.tensor([[-1.0, -2, 0], [-1, -1, -4]])
    seen = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.4, 0.5]])
    found = predictions(samples, "separate", logp, logp, seen)["critic"]
    assert found[0, :3].tolist() == pytest.approx([0.1, 0.2, 0.2])
    assert found[1].tolist() == pytest.approx([0.3, 0.4, 0.5, 0.5])
    ref_logp = torch.tensor([[-1.0, -1, 0], [-2, -3, -1]])
    found = predictions(samples, "log_probs", seen, ref_logp, logp)["critic"]
    assert found[1].logit().tolist() == pytest.approx([0, 0.5, 1.5, 0], abs=1e-6)


TRAINING = ("task=mini", "algo=ppo", "steps=2", "train.prompts=2", "train.group_size=4")
TRAINING += ("algo.learning_rate=1e-3", "train.checkpoint_every=1", "train.keep_checkpoints=9")
QUIET = ("eval.every=0", "eval.samples=1", "eval.kl_samples=0", "task.choose_problems=2")
QUIET += ("sandbox.kind=embedded", "sandbox.workers=1", "train.warmup_steps=0")


def test_a_table_that_is_killed_and_resumed_is_that_of_one_go(tmp_path, monkeypatch):
    end = train(config(*TRAINING, *QUIET, f"output_dir={tmp_path}/runs"))
    assert end.status == "finished"
    calls, continued_rewards = [], values.continued_rewards

    def killed(by, *arguments):
        calls.append(by.engine.version)
        if len(calls) == 4:  # the base's responses are continued by the policy alone
            raise KeyboardInterrupt
        return continued_rewards(by, *arguments)

    monkeypatch.setattr(values, "continued_rewards", killed)
    sizes, runs = {"problems": 2, "responses": 2, "continued": 1, "k": 2}, f"{tmp_path}/runs"
    broken, whole = (values.Options(runs, tmp_path / name, **sizes) for name in "ab")
    with pytest.raises(KeyboardInterrupt):
        values.main(broken)
    (first,) = broken.out.glob("parts/*.parquet")
    written = first.stat().st_mtime_ns
    values.main(broken)
    assert first.stat().st_mtime_ns == written
    values.main(whole)
    # by weights of 1 and 2 steps, and by the base, whose and the data's responses it continues once
    rest = [1, 0, 1, 0, 2, 0, 2, 2]
    assert calls == [1, 0, 1, 0, *rest, 1, 0, *rest]
    table, again = (pd.read_parquet(each.out / "values.parquet") for each in (whole, broken))
    pd.testing.assert_frame_equal(table, again)

    ends = table[table["cut"] == table["tokens"]]
    assert (ends["policy"] == ends["reward"]).all() and (ends["soft"] == ends["reward"]).all()
    cells = {key: part.reset_index() for key, part in table.groupby(["step", "writer"])}
    assert set(cells) == {(step, writer) for step in (1, 2) for writer in values.WRITERS}
    before, after = cells[1, "base"], cells[2, "base"]  # the same responses
    same = ["problem", "response", "cut", "reward", "reference", "soft"]
    pd.testing.assert_frame_equal(before[same], after[same])
    for predicted in ("log_ratio", "critic"):  # by other weights
        assert not before[predicted].equals(after[predicted]) and after[predicted].notna().all()
    assert (table.loc[table["cut"] == 0, "log_ratio"] == 0).all()
    with pytest.raises(UserError, match="steps=7"):
        values.main(values.Options(runs, tmp_path / "c", steps="7"))


def test_runs_of_which_a_study_names_only_some_are_refused(tmp_path):
    """After a call with arms=X only X has a name, and two arms of one algorithm would be one."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    (tmp_path / "arms.json").write_text(json.dumps([{"arm": "x", "run": "runs/a"}]))
    with pytest.raises(UserError, match=r"runs=.*b: the study's arms.json"):
        values.main(values.Options(runs=str(tmp_path), out=tmp_path / "out"))
