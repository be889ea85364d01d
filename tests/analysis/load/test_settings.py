import pytest

from analysis.groups import group_runs
from analysis.runs import load_run
from analysis.settings import differing_settings, shared_settings


def test_facts_are_words(tmp_path, make_run):
    left_out = {"accepts any valid answer": 1203, "no tests": 17}
    info = {
        "task": {"rows_read": 25000, "left_out": left_out, "decontaminated": []},
        "sandbox": {"name": "docker", "strength": "no network"},
        "hardware": {"machine": "x86_64", "cpus": 2, "gpu": None},
        "parameters": 770944,
        "train_problems": 9000,
        "eval_problems": 1000,
    }
    runs = [
        load_run(make_run(tmp_path, "spo", 0, info=info)),
        load_run(make_run(tmp_path, "spo", 1, info=info | {"judge_version": "2"})),
    ]
    assert dict(shared_settings(runs)) == {
        "model": "nano; 770,944 parameters",
        "problems": "mini, 9,000 for training, 1,000 for evaluation; 1,220 left out: "
        "accepts any valid answer 1,203, no tests 17",
        "evaluation": "20 samples per problem, temperature 0.4, top-p 0.95",
        "judge": "version 1, sandbox docker (no network) or version 2, sandbox docker (no network)",
        "machine": "machine x86_64, cpus 2",
    }


def test_further_temperatures_are_told_of_and_make_no_group(tmp_path, make_run):
    further = [{}, {"eval.further_temperatures": []}, {"eval.further_temperatures": [0.0, 1.0]}]
    runs = [
        load_run(make_run(tmp_path, "spo", seed, status="running", config=config))
        for seed, config in enumerate(further)
    ]
    (group,) = group_runs(runs)
    assert len(group.runs) == 3
    facts = [dict(shared_settings([run]))["evaluation"] for run in runs]
    assert facts[0] == facts[1]
    assert facts[2] == f"{facts[0]}, at the start and the end also temperature 0 and 1"


EARNINGS = {
    "problems": 510,
    "compared": 500,
    "earned_by_any": 3,
    "earned": {"samples table": 1, "first output": 2, "0": 0},
    "mean_share": {"samples table": 0.1, "first output": 0.214, "0": 0.2},
}
RATES = {
    "problems": 500,
    "measured_problems": 480,
    "right": 1204,
    "right_rejected": 11,
    "wrong": 40,
    "wrong_accepted": 2,
    "false_rejects": [0.009136, 0.0051, 0.0163],
    "false_accepts": [0.05, 0.01382, 0.165],
}
NOTHING = {"problems": 120, "measured_problems": 0, "false_rejects": None, "false_accepts": None}


@pytest.mark.parametrize(
    ("info", "subject", "text"),
    [
        (
            {"cheap_programs": {"train": EARNINGS, "eval": EARNINGS | {"earned_by_any": 0}}},
            "reward",
            "programs that solve nothing earn it on 3 (first output: 2, samples table: 1) of 500 "
            "training problems and on none of 500 evaluation problems",
        ),
        (
            {"judge_errors": {"train": RATES, "eval": RATES | {"false_accepts": None}}},
            "judge errors",
            "the judge rejects 0.9 % [0.5, 1.6] of 1,204 right programs and accepts 5.0 % "
            "[1.4, 16.5] of 40 wrong programs (of 480 of 500 training problems); the judge rejects "
            "0.9 % [0.5, 1.6] of 1,204 right programs (of 480 of 500 evaluation problems)",
        ),
        (
            {"judge_errors": {"train": NOTHING, "eval": NOTHING, "command": "a b"}},
            "judge errors",
            "not measured on the training and evaluation problems; run a b",
        ),
        ({}, "reward", None),
        ({}, "judge errors", None),
    ],
)
def test_what_a_reward_is_worth_and_how_often_the_judge_errs(
    tmp_path, make_run, info, subject, text
):
    runs = [load_run(make_run(tmp_path, "spo", 0, info=info))]
    assert dict(shared_settings(runs)).get(subject) == text


def test_shares_of_tests_count_where_they_are_paid(tmp_path, make_run):
    info = {"cheap_programs": {"train": EARNINGS}}
    config = {"task.reward": {"kind": "fraction"}}
    runs = [load_run(make_run(tmp_path, "spo", 0, info=info, config=config))]
    said = dict(shared_settings(runs))["reward"]
    best = "under fraction rewards the best of them (first output) passes 21.4 % of the tests"
    assert best in said


def test_an_algorithms_own_settings_are_compared_among_its_groups(tmp_path, make_run):
    runs = [
        make_run(tmp_path / "a", "spo", 0, config={"algo.beta": 0.1}),
        make_run(tmp_path / "b", "spo", 0, config={"algo.beta": 0.5, "train.sync_every": 10}),
        make_run(tmp_path / "c", "ppo", 0, config={"algo.lam": 1.0}),
    ]
    groups = group_runs([load_run(path) for path in runs])
    one, ten = "spo beta=0.1 sync_every=1", "spo beta=0.5 sync_every=10"
    assert differing_settings(groups) == [
        ("train.sync_every", [("1", ["ppo", one]), ("10", [ten])]),
        ("algo.beta", [("0.1", [one]), ("0.5", [ten])]),
    ]
