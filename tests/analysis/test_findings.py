"""Caveats: what changes a reader's conclusion is named, with the groups that it holds for."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.findings import caveats, findings
from analysis.groups import evaluated_models, group_runs
from analysis.runs import load_run
from analysis.tables import result_table
from tests.analysis.conversations import add_conversations


def notes_of(*paths):
    groups = group_runs([load_run(path) for path in paths])
    return caveats(groups, evaluated_models(groups))


@pytest.mark.parametrize(
    ("skills", "seeds", "words"),
    [
        ({"grpo": 2.0, "ppo": 4.0, "spo": 6.0}, 3, "helped, significant changes: "),
        ({"grpo": -4.0, "ppo": -3.0}, 3, "did not help, significant changes: "),
        ({"grpo": 2.0, "spo": 6.0}, 1, "helped, one seed, not tested: "),
        ({"grpo": 0.0, "spo": 0.0}, 3, "did not help, significant changes: none."),
        ({"spo": 6.0}, 3, "helped, significant changes: "),
    ],
)
def test_the_answer_says_who_leads_and_what_training_did(tmp_path, make_run, skills, seeds, words):
    runs = [(algo, seed) for algo in skills for seed in range(seeds)]
    paths = [make_run(tmp_path, algo, seed, skill=skills[algo]) for algo, seed in runs]
    experiment = build_experiment("compare", list(map(load_run, paths)))
    first, *others = findings(experiment)
    assert first.title == "" and first.statements[-1].startswith(f"Training {words}")
    means = result_table(experiment.models).set_index("label")["pass@1"]
    if "none" not in words:
        gains = (means[list(skills)] - means["base"]).abs()
        for part in (gains.min(), gains.max()):
            assert f"{part:.3f}" in first.statements[-1]
        assert f"in {len(skills)} of {len(skills)} groups" in first.statements[-1]
    if seeds > 1 and len(skills) > 1:
        leader = means.drop("base").idxmax()
        assert first.statements[0].startswith(f"pass@1: {leader} leads with {means[leader]:.3f}, ")
        assert others[0].title == "pass@1" and "leads" not in others[0].statements[0]


def change(path, columns):
    """Set columns of a table in a run folder: a value, or a function of the table."""
    file = path / ("evals.parquet" if "verdict" in columns else "metrics.parquet")
    table = pd.read_parquet(file)
    for column, value in columns.items():
        table[column] = value(table) if callable(value) else value
    table.to_parquet(file)


def test_five_equal_seeds_need_no_caveat(tmp_path, make_run):
    assert notes_of(*(make_run(tmp_path, "spo", seed) for seed in range(5))) == []


def lost(table):
    return np.where(table["sample"] == 0, "INFRA_ERROR", table["verdict"])


# Columns of spo, which stands beside grpo (none: it gets conversations); and what is then said.
CHANGES = {
    "mismatch": (
        {"mismatch/mean": 0.2, "mismatch/bound": 1e-3},
        "spo-0 the engine's log-probs differ",
    ),
    "budget": ({"budget/judged_tests": lambda t: t["step"] * 90}, "from 600 (grpo) to 1,800 (spo)"),
    "judge failures": ({"verdict": lost}, "spo: the judge failed on 12 of 240 samples (left out)."),
    "turns": ({}, "conversations of different lengths, from 1 (grpo) to 3 (spo)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_folder_is_named(tmp_path, make_run, name):
    grpo, spo = (make_run(tmp_path, algo, 0) for algo in ("grpo", "spo"))
    columns, words = CHANGES[name]
    change(grpo, {"budget/judged_tests": lambda table: table["step"] * 30})
    change(spo, columns) if columns else add_conversations(spo)
    assert sum(words in note for note in notes_of(grpo, spo)) == 1


# Settings and facts of spo, beside grpo without; and what is then said.
FACTS = {
    "failed": ({"status": "failed", "error": "OutOfMemory: 8 GB"}, {}, "failed (OutOfMemory"),
    "replay": ({}, {"replay.files": ["x"]}, "spo learned from samples of other policies"),
    "train split": ({}, {"eval.split": "train"}, "says nothing of others: spo."),
    "test split": ({"test_split_warning": "x"}, {}, "chosen by it: spo."),
    "tuned": ({}, {"tuned": "9 trials, table a.csv"}, "spo by 9 trials"),
    "data": ({"data_hash": "other"}, {}, "hashes: the problems are not the same (d4ta and other)"),
    "judge": ({"judge_version": "2"}, {}, "verdict (1 and 2)"),
    "machine": ({"hardware": {"cpu": "four"}}, {}, "compared (cpu four and cpu two"),
    "commit": ({"commit": "fedcba+"}, {}, "2 different commits (0123abc and fedcba+)"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_setting_or_a_fact_is_named(tmp_path, make_run, name):
    info, config, words = FACTS[name]
    other = make_run(tmp_path, "grpo", 0)
    notes = notes_of(other, make_run(tmp_path, "spo", 0, info=info, config=config))
    assert sum(words in note for note in notes) == 1
    assert not any(words in note for note in notes_of(other))


def test_seeds_problems_and_samples_that_are_few_or_differ_are_named(tmp_path, make_run):
    ppo = make_run(tmp_path, "ppo", 0, problems=9, samples=12)
    text = " ".join(notes_of(ppo, *(make_run(tmp_path, "spo", seed) for seed in (0, 1))))
    for words in (
        "One seed only: ppo.",
        "Fewer than 5 seeds: spo.",
        "Not every row was evaluated on the same problems",
        "Samples per problem differ, from 12 (",
        "Evaluated on 9 problems only",
        "distinct of 5 is a mean over different problems for each group",
    ):
        assert words in text


def test_runs_that_are_behind_or_repeated_are_named(tmp_path, make_run):
    first = make_run(tmp_path, "spo", 0)
    behind = make_run(tmp_path, "spo", 1, status="running")
    evals = pd.read_parquet(behind / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(behind / "evals.parquet")
    again = make_run(tmp_path / "again", "spo", 0, info={"started": "2026-01-01"})
    late = {"started": "2027-01-01"}  # but it did not get as far
    broken = make_run(tmp_path / "broken", "spo", 0, status="interrupted", info=late)
    (broken / "evals.parquet").unlink()
    (group,) = group_runs([load_run(path) for path in (first, behind, again, broken)])
    assert [run.path for run in group.runs] == [first.resolve(), behind.resolve()]
    assert [run.path for run in group.repeats] == [again.resolve(), broken.resolve()]
    assert group.last_step == 20 and [run.seed for run in group.complete] == [0]
    text = " ".join(notes_of(first, behind, again))
    assert "compare/spo-1 is running, or was killed; its last evaluated step: 0." in text
    assert "compare/spo-1 did not reach the evaluation at step 20" in text
    assert "compare/spo-0 left out, because another run with the same settings and seed" in text


def test_which_code_differs_is_named(tmp_path, make_run):
    runs = [make_run(tmp_path, "grpo", seed) for seed in (0, 1)]
    for run, digest in zip(runs, ("1", "2"), strict=True):
        code = {"algorithms/grpo.py": digest, "algorithms/base.py": "1"}
        (run / "digests.json").write_text(json.dumps({"code": code}))
    text = " ".join(notes_of(*runs))
    assert "The code of the runs differs in algorithms/grpo.py." in text
    assert "base.py" not in text
