"""Values of cuts: their columns at an exact optimum, and a table that is killed and resumed."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from analysis.values import with_predictions
from experiments import values
from experiments.errors import UserError
from experiments.trainer import train
from tests.algorithms.tabular import BETA, LENGTH, RESPONSES, ROWS, world
from tests.experiments.compose import config
from tests.experiments.rollout.test_prefixes import sample_of


def learner(algorithm, logp, ref_logp, values):
    """What `predictions` reads of one, with these results of its passes."""
    model, modules = torch.nn.Identity(), SimpleNamespace(values=lambda tokens: values)
    model.device = torch.device("cpu")
    passes = {"logp": lambda tokens: logp, "ref_logp": lambda tokens: ref_logp}
    return SimpleNamespace(pad=0, model=model, algorithm=algorithm, modules=modules, **passes)


def algorithm(critic):
    return SimpleNamespace(needs=SimpleNamespace(critic=critic), config=SimpleNamespace(beta=0.5))


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
    predicted = values.predictions(learner(algorithm("none"), logp, uniform, None), samples)
    given = (predicted, (ahead, ahead), BETA, lambda tokens, **_: "".join(map(str, tokens)))
    table = values.table_of(samples, cuts, *given)
    rows = with_predictions(table)
    off = (rows["Q"] - rows["soft"]).abs().max()
    assert off < 1e-10 if share == 1 else off > 0.1
    assert rows["logp"].iloc[3::4].tolist() == pytest.approx(weights.log().tolist())
    assert table["text"].iloc[:4].tolist() == ["", "0", "0", "0"]
    ends = rows[rows["cut"] == rows["tokens"]]
    assert ends["soft"].tolist() == pytest.approx(rewards.tolist())
    assert rows["policy"].iloc[0] == pytest.approx(rewards.mean().item())


def test_a_critic_is_read_before_tokens_and_primes_model_after_them():
    samples = [sample_of((5, 6)), sample_of((5, 6, 7))]
    logp = torch.tensor([[-1.0, -2, 0], [-1, -1, -4]])
    seen = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.4, 0.5]])
    found = values.predictions(learner(algorithm("separate"), logp, logp, seen), samples)
    assert found["critic"][0, :3].tolist() == pytest.approx([0.1, 0.2, 0.2])
    assert found["critic"][1].tolist() == pytest.approx([0.3, 0.4, 0.5, 0.5])
    ref_logp = torch.tensor([[-1.0, -1, 0], [-2, -3, -1]])
    given = (algorithm("log_probs"), seen, ref_logp, logp)  # of its reward model: `logp`
    found = values.predictions(learner(*given), samples)
    logits = found["critic"].logit()[1].tolist()
    assert logits == pytest.approx([0, 0.5 * 1, 0.5 * (1 + 2), 0.5 * (1 + 2 - 3)], abs=1e-6)


TRAINING = ("task=mini", "algo=ppo", "steps=2", "train.prompts=2", "train.group_size=4")
TRAINING += ("algo.learning_rate=1e-3", "train.checkpoint_every=1", "train.keep_checkpoints=9")
QUIET = ("eval.every=0", "eval.samples=1", "eval.kl_samples=0", "task.choose_problems=2")
QUIET += ("sandbox.kind=embedded", "sandbox.workers=1", "train.warmup_steps=0")


def test_a_table_that_is_killed_and_resumed_is_that_of_one_go(tmp_path, monkeypatch):
    end = train(config(*TRAINING, *QUIET, f"output_dir={tmp_path}/runs"))
    assert end.status == "finished"
    sizes = {"problems": 2, "responses": 2, "continued": 1, "k": 2}
    calls, continued_rewards = [], values.continued_rewards

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # the base's responses, continued by the policy alone
            raise KeyboardInterrupt
        return continued_rewards(*arguments)

    monkeypatch.setattr(values, "continued_rewards", killed)
    whole = values.Options(f"{tmp_path}/runs", tmp_path / "whole", **sizes)
    broken = values.Options(f"{tmp_path}/runs", tmp_path / "broken", **sizes)
    with pytest.raises(KeyboardInterrupt):
        values.main(broken)
    (first,) = (tmp_path / "broken" / "parts").glob("*.parquet")
    written = first.stat().st_mtime_ns
    (first.parent / ".half.parquet").write_text("what a kill leaves")
    values.main(broken)
    # of five parts by the policy, of two also by the reference, which two others share
    assert len(calls) == 4 + 5 + 1 + 2
    assert first.stat().st_mtime_ns == written
    values.main(whole)
    table, again = (pd.read_parquet(each.out / "values.parquet") for each in (whole, broken))
    pd.testing.assert_frame_equal(table, again)
    values.main(whole)
    assert len(calls) == 4 + 8 + 10  # nothing is measured anew

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
        values.main(values.Options(f"{tmp_path}/runs", tmp_path / "none", steps="7"))
