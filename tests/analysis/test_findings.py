"""Caveats: what changes a reader's conclusion is named, with the groups that it holds for."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.findings import caveats
from analysis.groups import evaluated_models, group_runs
from analysis.runs import load_run
from tests.analysis.conversations import add_conversations


def notes_of(*paths):
    groups = group_runs([load_run(path) for path in paths])
    return caveats(groups, evaluated_models(groups))


def change(path, name, **columns):
    """Set columns of a table in a run folder: a value, or a function of the table."""
    table = pd.read_parquet(path / name)
    for column, value in columns.items():
        table[column.replace("__", "/")] = value(table) if callable(value) else value
    table.to_parquet(path / name)


def test_five_equal_seeds_need_no_caveat(tmp_path, make_run):
    assert notes_of(*(make_run(tmp_path, "spo", seed) for seed in range(5))) == []


# Each changes the folder of spo, which stands beside one of grpo; and what is then said.
CHANGES = {
    "mismatch": (
        lambda run: change(run, "metrics.parquet", mismatch__mean=0.2, mismatch__bound=1e-3),
        "spo: in compare/spo-0 the engine's log-probs differ",
    ),
    "budget": (
        lambda run: change(run, "metrics.parquet", budget__judged_tests=lambda t: t["step"] * 90),
        "judged tests from 600 (grpo) to 1,800 (spo)",
    ),
    "judge failures": (
        lambda run: change(
            run,
            "evals.parquet",
            verdict=lambda t: np.where(t["sample"] == 0, "INFRA_ERROR", t["verdict"]),
        ),
        "spo: the judge failed on 12 of 240 samples (left out).",
    ),
    "turns": (add_conversations, "conversations of different lengths, from 1 (grpo) to 3 (spo)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_folder_is_named(tmp_path, make_run, name):
    grpo, spo = (make_run(tmp_path, algo, 0) for algo in ("grpo", "spo"))
    change(grpo, "metrics.parquet", budget__judged_tests=lambda t: t["step"] * 30)
    apply, words = CHANGES[name]
    apply(spo)
    assert sum(words in note for note in notes_of(grpo, spo)) == 1


# Settings and facts of spo, beside grpo without; and what is then said.
FACTS = {
    "failed": ({"status": "failed", "error": "OutOfMemory: 8 GB"}, {}, "failed (OutOfMemory"),
    "replay": ({}, {"replay.files": ["x"]}, "spo learned from samples of other policies"),
    "train split": ({}, {"eval.split": "train"}, "says nothing of others: spo."),
    "test split": ({"test_split_warning": "x"}, {}, "chosen by it: spo."),
    "tuned": ({}, {"tuned": "9 trials, table a.csv"}, "spo by 9 trials"),
    "data": (
        {"data_hash": "other"},
        {},
        "data hashes: the problems are not the same (d4ta and other)",
    ),
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
    make_run(tmp_path, "spo", 0)
    behind = make_run(tmp_path, "spo", 1, status="running")
    evals = pd.read_parquet(behind / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(behind / "evals.parquet")
    again = make_run(tmp_path / "again", "spo", 0, info={"started": "2026-01-01"})
    text = " ".join(notes_of(tmp_path / "compare" / "spo-0", behind, again))
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
