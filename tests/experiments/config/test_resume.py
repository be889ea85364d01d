"""A run that was stopped goes on to the same bits, whenever and however it was stopped."""

import json
import os
import random
import shutil
import signal
import time
import traceback
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from experiments import trainer
from experiments.config import composition
from experiments.errors import UserError
from experiments.evaluation import Evaluation
from experiments.learner.learner import Learner
from experiments.rollout.generate import Session
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.records import Records
from tests.experiments.compose import assert_same as assert_same_tables
from tests.experiments.compose import config as config_of
from tests.experiments.compose import finished
from tests.selection import all_but_slow

SMALL = [
    *("steps=6", "eval.every=4", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=1"),
    *("task.max_response_tokens=32", "train.prompts=2", "train.group_size=4"),
    *("train.checkpoint_every=2", "engine.logprob_check_every=3", "engine.logprob_check_samples=2"),
    *("task.train_problems=6", "task.choose_problems=2", "task.test_problems=2"),
    *("task.tune_problems=2", "sandbox=embedded", "sandbox.workers=1", "algo.learning_rate=1e-3"),
]
CASES = {
    "spo-half-online-replay": [
        *("algo=spo", "algo.q0=online", "algo.q0_samples=4", "train.sync_every=2"),
        *("train.offline_share=0.5", "train.replay_share=0.25", "replay.max_uses=1"),
    ],
    "ppo-stale": [
        *("algo=ppo", "algo.critic=separate", "train.lag=3", "train.keep_samples=true"),
        "train.reference_every=3",  # so that a checkpoint lies between two moves
    ],
    "grpo": [
        *("algo=grpo", "train.epochs=2"),
        *("task.reward.dither=0.05", "task.reward.conciseness=0.5"),
    ],
    # passes of three batches; problems leave the band after the second
    "grpo-curriculum": ["algo=grpo", "train.curriculum=band", "train.group_size=10"],
    "spo-conversations": [
        *("algo=spo", "algo.q0=online", "algo.q0_samples=4", "task.turns=3", "task.chat=true"),
        *("train.replay_share=0.25", "train.lag=1", "train.keep_samples=true"),
    ],
    "ppo-conversations": [
        *("algo=ppo", "algo.value_unit=turn", "task.turns=2", "task.feedback=foreign")
    ],
    "segment-chain": [
        *("algo=segment_chain", "algo.continuations=3", "algo.cut_every=2"),
        *("train.keep_prefix_values=true", "train.lag=1"),
    ],
    "remix": [
        *("algo=remix", "algo.base_from=0", "algo.reincarnate_at=4"),
        *("train.replay_share=0.5", "train.epochs=2"),
    ],
}


def begin(output_dir, *overrides):
    return trainer.train(config_of(*SMALL, f"output_dir={output_dir}", *overrides))


def go_on(folder, *overrides):
    return trainer.train(composition.resumed_config(folder, overrides), folder)


def assert_same(folder, undisturbed):
    assert_same_tables(folder, undisturbed, "metrics", "evals")
    logs = ("samples/*.arrow", "prefix_values/*.arrow")
    parts = [
        sorted(file for log in logs for file in run.glob(log)) for run in (folder, undisturbed)
    ]
    assert len(parts[0]) == len(parts[1])
    for one, other in zip(*parts, strict=True):
        tables = [pa.ipc.open_file(part).read_all() for part in (one, other)]
        free = {"cpu_s", "run"} & set(tables[0].column_names)  # time, and the folder's name
        assert tables[0].drop([*free]).equals(tables[1].drop([*free])), one
    weights = Path("checkpoints", "final", "model.safetensors")
    assert (folder / weights).read_bytes() == (undisturbed / weights).read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run folder of a case that nothing stopped, and how long a step took."""
    made = {}

    def of(case, *overrides):
        if case not in made:
            started = time.monotonic()
            given = [*SMALL, *CASES[case], *overrides]
            folder = finished(*given, f"output_dir={tmp_path_factory.mktemp(case)}")
            steps = len(pd.read_parquet(folder / "metrics.parquet"))
            made[case] = folder, (time.monotonic() - started) / steps
        return made[case]

    return of


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    """A finished run of four steps of grpo, made once."""
    few = [*SMALL, *CASES["grpo"], "steps=4"]
    return finished(*few, f"output_dir={tmp_path_factory.mktemp('four')}")


@pytest.fixture
def four(four_steps, tmp_path):
    """A copy of that run folder."""
    return shutil.copytree(four_steps, tmp_path / four_steps.name)


def interrupt_at(monkeypatch, target, name, call):
    """The call-th call of target.name ends in Ctrl-C."""
    calls, original = [], getattr(target, name)

    def interrupted(*given, **named):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*given, **named)

    monkeypatch.setattr(target, name, interrupted)


INTERRUPTS = {
    "before a step": (Rollouts, "collect", 4),
    "in a batch, while it is judged": (Session, "wait", 3),
    "in a step, after judging": (trainer, "sample_metrics", 4),
    "before an evaluation": (trainer.Trainer, "kl_metrics", 1),
    "in an evaluation": (Evaluation, "rows", 2),
}


# Slow: at the ends of a step and of an evaluation nothing is half done, before the update nothing
# is learnt, and an evaluation that broke off is made again as a whole.
BETWEEN = ("before a step", "in a step, after judging", "before an evaluation", "in an evaluation")


@pytest.mark.parametrize("moment", all_but_slow(INTERRUPTS, slow=BETWEEN))
def test_ctrl_c_anywhere_costs_nothing(moment, undisturbed, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, *INTERRUPTS[moment])
        outcome = begin(tmp_path, *CASES["grpo"])
    assert outcome.status == "interrupted"
    assert (outcome.folder / "checkpoints" / "interrupted" / "state.json").exists()
    assert go_on(outcome.folder).status == "finished"
    assert_same(outcome.folder, undisturbed("grpo")[0])


def in_child(function, *given):
    """The process, a leader of its group, that calls the function."""
    if child := os.fork():
        return child
    try:
        os.setsid()
        os._exit(0 if function(*given).status == "finished" else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def rows(folder):
    journal = folder / "metrics.jsonl"
    return journal.read_text().count("\n") if journal.exists() else 0


def kill_after(child, root, wanted, delay):
    """kill -9 once `wanted` rows are there and `delay` seconds are over → the run folder."""
    while not (found := list(root.glob("mini/*/metrics.jsonl"))) or rows(found[0].parent) < wanted:
        ended, _ = os.waitpid(child, os.WNOHANG)
        assert not ended, "the run ended before it could be killed"
        time.sleep(0.01)
    time.sleep(delay)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found[0].parent


def killed_often(root, kills, steps, seconds, case, *overrides):
    """A run that is killed at random moments until it has been killed `kills` times."""
    rng = random.Random(0)
    moments = sorted(rng.uniform(0, steps - 1) for _ in range(kills))
    child = in_child(begin, root, *CASES[case], *overrides)
    for moment in moments:
        folder = kill_after(child, root, int(moment), (moment % 1) * seconds / 2)
        child = in_child(go_on, folder)
    _, status = os.waitpid(child, 0)
    assert status == 0
    return folder


@pytest.mark.parametrize(
    "case",  # grpo is interrupted below and above
    [
        "spo-half-online-replay",  # it has most to restore
        # Values of prefixes are made anew from weights and seeds; test_trainer.py has them once.
        pytest.param("segment-chain", marks=pytest.mark.slow),
        # The middle of a conversation is no state: it is begun again, as a response is.
        pytest.param("spo-conversations", marks=pytest.mark.slow),
        # Interrupted above, between two moves of its reference.
        pytest.param("ppo-stale", marks=pytest.mark.slow),
        # It replays as the other does, and policy/test_snapshots.py has the weights that it keeps.
        pytest.param("remix", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_killed_twice_ends_in_the_same_bits(case, undisturbed, tmp_path):
    whole, seconds = undisturbed(case)
    assert_same(killed_often(tmp_path, 2, 6, seconds, case), whole)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_killed_twenty_times_ends_in_the_same_bits(case, tmp_path):
    longer = ["steps=40", "eval.every=10", "train.checkpoint_every=3"]
    if case == "ppo-stale":
        longer += ["train.lag=10"]
    begun = time.monotonic()
    outcome = begin(tmp_path / "whole", *CASES[case], *longer)
    seconds = (time.monotonic() - begun) / 40
    folder = killed_often(tmp_path / "killed", 20, 40, seconds, case, *longer)
    assert_same(folder, outcome.folder)


def test_a_finished_run_goes_further_and_a_damaged_checkpoint_is_passed_over(
    undisturbed, four, capfd
):
    folder = four
    assert composition.is_finished(folder, composition.resumed_config(folder, []))
    state = folder / "checkpoints" / "final" / "state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    assert go_on(folder, "steps=6").status == "finished"
    assert f"{state.parent}: damaged" in capfd.readouterr().err.replace("\n", "")
    assert_same(folder, undisturbed("grpo")[0])


def broken_off(*given):
    raise RuntimeError("out of memory")


def test_an_update_that_breaks_off_leaves_the_checkpoint_that_was_gone_on_from(
    undisturbed, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        interrupt_at(patched, Rollouts, "collect", 2)  # before the first of the numbered ones
        outcome = begin(tmp_path, *CASES["grpo"])
    with monkeypatch.context() as patched:
        patched.setattr(Learner, "_step", broken_off)
        assert go_on(outcome.folder).status == "failed"
    assert (outcome.folder / "checkpoints" / "interrupted" / "state.pt").exists()
    assert go_on(outcome.folder).status == "finished"
    assert [one["step"] for one in resumed(outcome.folder)] == [1, 1]
    assert_same(outcome.folder, undisturbed("grpo")[0])


def test_a_checkpoint_whose_place_was_being_taken_is_found_and_what_a_kill_left_goes(
    undisturbed, four
):
    folder = four
    checkpoints = folder / "checkpoints"
    shutil.copytree(checkpoints / "step-2", checkpoints / "step-1")  # run.json knows none of it
    shutil.copytree(checkpoints / "final", checkpoints / ".final")
    shutil.rmtree(checkpoints / "final")  # killed before .final took its place
    assert go_on(folder, "steps=6").status == "finished"
    assert [one["step"] for one in resumed(folder)] == [4]
    assert_same(folder, undisturbed("grpo")[0])
    left = {path.name for path in checkpoints.iterdir()}
    assert left == set(json.loads((folder / "run.json").read_text())["checkpoints"])
    assert "step-1" not in left


def resumed(folder):
    return json.loads((folder / "run.json").read_text())["resumed"]


def test_another_model_is_refused_in_a_line(four, monkeypatch):
    monkeypatch.setattr("experiments.policy.loading.fingerprint", lambda model: "others")
    ended = go_on(four, "steps=6")
    assert (ended.status, ended.expected) == ("failed", True)
    assert ended.error.startswith("model.path: weights others, but the checkpoint was written with")


def kept(tmp_path, *overrides):
    records = Records(config_of(*SMALL, "algo=grpo", f"output_dir={tmp_path}", *overrides))
    records.finish("interrupted")
    return records.folder


REFUSED = [  # overrides; words of the line
    ("algo.kl_coef=0.5", "algo.kl_coef=0.5 (was "),
    ("seed=3", "seed=3 (was 0) --config-path"),
    ("train.promts=3", "'train.promts' 'train.prompts'"),
    ("steps=many", "steps='many'"),
    ("steps=4,5", "steps=4,5"),
    ("algo=ppo", "algo=ppo"),
    ("logger=wandb2", "logger=wandb2 'wandb'"),
    ("experiment=quick", "experiment=quick"),
    ("train=5", "train=5 train.KEY=VALUE"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_would_be_another_run_is_refused_by_its_key(given, words, tmp_path):
    with pytest.raises(UserError) as refused:
        composition.resumed_config(kept(tmp_path), given.split())
    assert all(word in str(refused.value) for word in words.split()), refused.value


def test_what_changes_no_result_may_change(tmp_path):
    same = ["algo=grpo", "task=mini"]
    other = ["steps=9", "eval.every=0", "logger=wandb", "sandbox=docker", "output_dir=there"]
    given = [*same, *other, "train.micro_batch=8"]
    config = composition.resumed_config(kept(tmp_path), given)
    assert (config.steps, config.eval.every, config.train.micro_batch) == (9, 0, 8)
    assert (config.logger.wandb.project, config.sandbox.kind) == ("spo-bench", "docker")


def test_a_schedule_with_an_end_keeps_it(tmp_path):
    folder = kept(tmp_path, "train.schedule=linear")
    assert composition.resumed_config(folder, ["eval.every=0"]).steps == 6
    with pytest.raises(UserError, match=r"train\.schedule=linear"):
        composition.resumed_config(folder, ["steps=9"])


def test_a_run_that_is_still_going_on_is_not_resumed(tmp_path):
    config = config_of(*SMALL, "algo=grpo", f"output_dir={tmp_path}")
    records = Records(config)
    with pytest.raises(UserError, match="still active"):
        Records(config, records.folder)
    records.finish("interrupted")
    Records(config, records.folder).finish("interrupted")
