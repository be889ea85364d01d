"""Which runs a study stands for, in which order, and how each is found again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.config.resolve_defaults import resolve_defaults
from experiments.errors import UserError
from experiments.policy.loading import pick_device
from experiments.run_dir.records import Records
from experiments.studies.jobs import (
    End,
    config_with_seed,
    end_of,
    full_overrides,
    is_lost,
    is_ready,
    jobs_of,
)
from experiments.studies.study import Arm, Choice, Claim, Study

NANO = Path(__file__).resolve().parents[3] / "assets" / "nano"
ARMS = {
    "after": Arm(["algo=grpo"], weights_of="sft"),
    "sft": Arm(["algo=sft", "train.offline_share=1"]),
}
STUDY = Study("q", [0, 1], ARMS, name="s", overrides=["task=mini", "steps=4"])


def study_jobs(*given):
    return jobs_of(STUDY, STUDY.seeds, list(ARMS), given)


def test_seed_by_seed_and_what_others_need_first():
    assert [job.label for job in study_jobs()] == ["sft-s0", "after-s0", "sft-s1", "after-s1"]


def test_a_models_folder_stands_for_its_choice_and_the_last_one_holds(tmp_path):
    shutil.copytree(NANO, tmp_path / "mine")
    arms = {"own": Arm([f"model={tmp_path}/mine"]), "nano": Arm(["model=nano", "algo=grpo"])}
    study = Study("q", [0], arms, name="s", overrides=["task=mini", f"model={tmp_path}"])
    own, nano = (config_with_seed(job.overrides, 0) for job in jobs_of(study, [0], list(arms), []))
    assert (own.model.path, own.model.name) == (f"{tmp_path}/mine", "mine")
    assert nano.model.path == "assets/nano"


def test_an_arm_begins_with_the_final_weights_of_another_of_its_seed():
    sft, after, *_ = study_jobs()
    assert after.needs == (sft,)
    assert not is_ready(after, {})
    ended = {sft: End("finished", Path("o (1)/s/sft-s0-x"))}
    assert is_ready(after, ended) and not is_lost(after, ended)
    config = config_with_seed(full_overrides(after, ended), after.seed)
    assert config.model.path == "o (1)/s/sft-s0-x/checkpoints/final"
    assert config.model.name == "nano-after-sft"
    assert (config.algo.name, config.steps, config.name) == ("grpo", 4, "s")
    assert is_lost(after, {sft: End("failed")})


def with_samples(run):
    (run / "samples").mkdir(parents=True)
    (run / "samples" / "step-00000001.arrow").touch()
    return run


def test_an_arm_trains_on_the_batches_that_another_kept(tmp_path):
    run = with_samples(tmp_path / "grpo (1)")
    arms = {
        "grpo": Arm(["algo=grpo", "train.keep_samples=true"]),
        "frozen": Arm(["experiment=frozen", "algo=ppo"], rollouts_of="grpo"),
    }
    grpo, frozen = jobs_of(Study("q", [0], arms, name="s"), [0], list(arms), [])
    ended = {grpo: End("finished", run)}
    config = config_with_seed(full_overrides(frozen, ended), 0)
    assert config.replay.from_runs == [str(run)]
    assert (config.replay.frozen, config.algo.name, config.name) == (True, "ppo", "s")


def test_an_arm_replays_what_another_kept_and_nothing_else(tmp_path):
    run = with_samples(tmp_path / "ppo")
    arms = {
        "ppo": Arm(["algo=ppo", "train.keep_samples=true"]),
        "spo": Arm(["algo=spo", "train.replay_share=0.5"], replay_of="ppo"),
    }
    ppo, spo = jobs_of(Study("q", [0], arms, name="s"), [0], list(arms), [])
    assert spo.needs == (ppo,)
    config = config_with_seed(full_overrides(spo, {ppo: End("finished", run)}), 0)
    assert (config.replay.from_runs, config.replay.own) == ([str(run)], False)
    assert (config.replay.frozen, config.train.replay_share) == (False, 0.5)


def test_the_best_of_the_short_runs_gives_the_value_and_one_that_failed_none():
    choice = Choice("algo.learning_rate", [1e-4, 1e-3, 1e-2], ["steps=2", "eval.split=tune"], 9)
    study = Study("q", [0], {"grpo": Arm(["algo=grpo"])}, "s", ["steps=4"], choice)
    *tried, final = jobs_of(study, [0], ["grpo"], [])
    assert [job.label for job in tried] == ["grpo-s9-0.0001", "grpo-s9-0.001", "grpo-s9-0.01"]
    configs = [config_with_seed(job.overrides, job.seed) for job in tried]
    assert [(c.steps, c.seed, c.name) for c in configs] == [(2, 9, "s-choice")] * 3
    scores = dict(zip(tried, (0.2, 0.3), strict=False))
    ended = {job: End("finished", Path("x"), None, score) for job, score in scores.items()}
    assert not is_ready(final, ended)
    ended[tried[2]] = End("failed")
    config = config_with_seed(full_overrides(final, ended), final.seed)
    assert (config.algo.learning_rate, config.steps, config.name) == (1e-3, 4, "s")
    assert not is_lost(final, ended)
    assert is_lost(final, dict.fromkeys(tried, End("failed")))


def test_a_run_is_found_by_its_configuration_and_how_it_ended(tmp_path):
    sft = study_jobs(f"output_dir={tmp_path}")[0]
    config = config_with_seed(sft.overrides, sft.seed)
    assert end_of(config).status == "not begun"
    records = Records(resolve_defaults(config, str(pick_device(config.model.device))))
    assert (end_of(config).status, end_of(config).folder) == ("running", records.folder)
    records.describe(pass_at={10: 0.5, 1: 0.25})
    records.finish("finished")
    assert end_of(config) == End("finished", records.folder, None, 0.25)
    assert end_of(config_with_seed(sft.overrides, 1)).status == "not begun"
    info = json.loads((records.folder / "run.json").read_text())
    (records.folder / "run.json").write_text(json.dumps(info | {"status": "failed", "error": "e"}))
    assert end_of(config) == End("failed", records.folder, "e")


def test_the_final_runs_of_a_study_on_the_test_split_say_so_and_its_short_runs_do_not():
    choice = Choice("algo.learning_rate", [1e-4, 1e-3], ["steps=2", "eval.split=tune"], 100)
    final = ["task=mini", "steps=4", "eval.split=test"]
    arms = {"ppo": Arm(["algo=ppo"])}
    study = Study("q", [0], arms, name="s", overrides=final, choice=choice, final=True)
    short, _, full = jobs_of(study, [0], ["ppo"], [])
    evals = [config_with_seed(job.overrides, 0).eval for job in (short, full)]
    assert [(each.split, each.final) for each in evals] == [("tune", False), ("test", True)]
    (elsewhere,) = jobs_of(replace(STUDY, final=True), [0], ["sft"], [])
    assert not config_with_seed(elsewhere.overrides, 0).eval.final


@pytest.mark.parametrize("is_final", [False, True])
def test_a_study_s_command_and_file_cannot_set_what_its_runner_sets(is_final):
    by_hand = ["eval.split=test", "eval.final=true"]
    with pytest.raises(UserError, match="it is the runner's to set; write final: true"):
        jobs_of(replace(STUDY, final=is_final), [0], ["sft"], by_hand)


def test_a_study_that_is_not_final_is_warned_of_the_test_split_as_any_run_is():
    (job,) = jobs_of(STUDY, [0], ["sft"], ["eval.split=test"])
    made = config_with_seed(job.overrides, 0).eval
    assert (made.split, made.final) == ("test", False)


@pytest.mark.parametrize("split", ["choose", "test"])
def test_a_choice_is_made_on_the_tune_split_alone(split):
    choice = Choice("algo.learning_rate", [1e-4, 1e-3], ["steps=2"], 100)
    study = Study("q", [0], {"ppo": Arm(["algo=ppo"])}, "s", ["task=mini"], choice)
    words = f"choice: eval.split={split}: .* add eval.split=tune to choice.overrides"
    with pytest.raises(UserError, match=words):
        jobs_of(study, [0], ["ppo"], [f"eval.split={split}"])


def test_a_claim_on_a_k_that_its_arms_do_not_measure_is_refused():
    study = replace(STUDY, claims=[Claim("more at 3", "after", "sft", "pass@3")])
    with pytest.raises(UserError, match=r"'more at 3' is on pass@3, but arm after measures k = 1,"):
        jobs_of(study, [0], list(ARMS), [])
    measured = replace(study, overrides=[*study.overrides, "eval.k=[1,3]"])
    assert jobs_of(measured, [0], list(ARMS), [])
    assert jobs_of(study, [0], list(ARMS), ["eval.k=[1]", "eval.samples=1"])  # a trial by hand
