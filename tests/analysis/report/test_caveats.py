import json

import pandas as pd

from analysis.caveats import caveats
from analysis.groups import group_runs
from analysis.models import evaluated_models
from analysis.runs import load_run
from tests.analysis.conversations import add_conversations


def notes_of(*paths):
    groups = group_runs([load_run(path) for path in paths])
    return caveats(groups, evaluated_models(groups))


def test_five_equal_seeds_need_no_caveat_but_how_few_problems_the_base_solves(tmp_path, make_run):
    notes = notes_of(*(make_run(tmp_path, "spo", seed) for seed in range(5)))
    assert [note.split(" (")[0] for note in notes] == [
        "distinct of 5 is based on few problems: base",
        "edit distance is based on few problems: base",
    ]


def test_training_without_one_accepted_response_is_named(tmp_path, make_run):
    grpo, spo = make_run(tmp_path, "grpo", 0), make_run(tmp_path, "spo", 0)
    sft = make_run(tmp_path, "sft", 0, config={"train.offline_share": 1.0})
    for path, share in ((grpo, 0.0), (spo, 0.25), (sft, 0.0)):
        metrics = pd.read_parquet(path / "metrics.parquet")
        metrics["accepted_share"] = [*[0.0] * (len(metrics) - 1), share]
        metrics.to_parquet(path / "metrics.parquet")
    [note] = [note for note in notes_of(grpo, spo, sft) if "in training" in note]
    assert note.startswith("No response drawn in training was accepted: grpo.")


def test_an_evaluation_on_few_problems_is_named_with_their_number(tmp_path, make_run):
    note = "Evaluated on 9 problems only, so intervals over problems cannot be relied on."
    assert note in notes_of(make_run(tmp_path / "few", "spo", 0, problems=9))
    assert not any("problems only" in n for n in notes_of(make_run(tmp_path, problems=10)))


def test_one_seed_and_few_seeds_are_told_apart(tmp_path, make_run):
    notes = notes_of(make_run(tmp_path, "ppo", 0), *(make_run(tmp_path, "spo", s) for s in (0, 1)))
    assert any(note.startswith("One seed only: ppo.") for note in notes)
    assert any(note.startswith("Fewer than 5 seeds: spo.") for note in notes)


def test_runs_that_did_not_end_well_are_named_with_the_reason(tmp_path, make_run):
    failed = make_run(tmp_path, "spo", 0, status="failed", info={"error": "OutOfMemory: 8 GB"})
    running = make_run(tmp_path, "spo", 1, status="running")
    evals = pd.read_parquet(running / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(running / "evals.parquet")
    notes = notes_of(failed, running)
    assert (
        "compare/spo-0 is failed (OutOfMemory: 8 GB); its last evaluation is at step 20." in notes
    )
    assert any(note.startswith("compare/spo-1 is running, or was killed") for note in notes)
    assert any("compare/spo-1 did not reach the evaluation at step 20" in note for note in notes)


def test_different_budgets_are_told_with_their_sizes(tmp_path, make_run):
    notes = notes_of(make_run(tmp_path, "spo", 0), make_run(tmp_path, "ppo", 0, steps=40))
    matching = next(note for note in notes if note.startswith("The groups spent different budgets"))
    assert "optimiser steps from 20 (spo) to 40 (ppo)" in matching


def test_reference_tokens_and_tests_that_only_one_group_spent_are_told(tmp_path, make_run):
    spo, grpo = make_run(tmp_path, "spo", 0), make_run(tmp_path, "grpo", 0)
    for path, tokens, tests in ((spo, 1000, 90), (grpo, 0, 30)):
        metrics = pd.read_parquet(path / "metrics.parquet")
        metrics["budget/reference_tokens"] = metrics["step"] * tokens
        metrics["budget/judged_tests"] = metrics["step"] * tests
        metrics.to_parquet(path / "metrics.parquet")
    matching = next(note for note in notes_of(spo, grpo) if "spent different budgets" in note)
    assert "reference tokens from 0 (grpo) to 20,000 (spo)" in matching
    assert "judged tests from 600 (grpo) to 1,800 (spo)" in matching
    assert "judged programs" not in matching


def test_wall_time_that_another_run_has_spent_is_told(tmp_path, make_run):
    spo, grpo = make_run(tmp_path, "spo", 0), make_run(tmp_path, "grpo", 0)
    for path, charged in ((spo, 30.0), (grpo, 4.0)):
        metrics = pd.read_parquet(path / "metrics.parquet")
        metrics["time/total_s"], metrics["time/charged_s"] = 100.0, charged
        metrics.to_parquet(path / "metrics.parquet")
    (matching,) = (note for note in notes_of(spo, grpo) if "charged here again" in note)
    assert matching.startswith("Up to 30% of the wall time of spo was spent by another run")


def test_a_group_that_was_only_evaluated_spent_nothing_to_compare(tmp_path, make_run):
    base = make_run(tmp_path / "a", "spo", 0, steps=0, config={"model.name": "big"})
    notes = notes_of(base, make_run(tmp_path / "b", "spo", 0))
    assert not any("spent different budgets" in note for note in notes)


def test_facts_of_the_machine_are_told_in_words(tmp_path, make_run):
    facts = [
        {
            "hardware": {"machine": "x86_64", "memory_gb": gb},
            "sandbox": {"name": name, "strength": "long " * 30},
        }
        for gb, name in ((8.0, "docker"), (16.0, "embedded"))
    ]
    notes = notes_of(
        make_run(tmp_path, "spo", 0, info=facts[0]), make_run(tmp_path, "spo", 1, info=facts[1])
    )
    text = " ".join(notes)
    assert "2 different hardware (memory_gb 16 and memory_gb 8)" in text
    assert "2 different sandboxes (docker and embedded)" in text
    assert "{" not in text


def with_code(folder, **digests):
    code = {f"algorithms/{name}.py": digest for name, digest in digests.items()}
    (folder / "digests.json").write_text(json.dumps({"code": code}))
    return folder


def test_which_code_differs_is_named(tmp_path, make_run):
    def run(algo, seed, commit="abc", **digests):
        return with_code(make_run(tmp_path, algo, seed, info={"commit": commit}), **digests)

    spo = run("spo", 0, spo="1", base="1"), run("spo", 1, spo="1", base="1")
    grpo = run("grpo", 0, "abc+", grpo="1", base="1"), run("grpo", 1, "abc+", grpo="2", base="1")
    text = " ".join(notes_of(*spo, *grpo))
    assert "grpo: the code of its runs differs in algorithms/grpo.py, so its numbers" in text
    assert (
        "2 different commits (abc and abc+): the files of code that runs have in common differ"
        in text
    )
    assert "spo: the code" not in text

    text = " ".join(notes_of(*spo, grpo[0]))
    assert (
        "2 different commits (abc and abc+): the files of code that runs have in common are" in text
    )
    assert "of several versions" not in text

    text = " ".join(notes_of(*grpo))
    assert "The runs have the same commit with other changes: the files of code" in text


def test_a_run_that_is_left_out_for_another_of_other_code_says_so(tmp_path, make_run):
    older = make_run(tmp_path / "x", "grpo", 0, info={"started": "2026-01-01"})
    later = make_run(tmp_path / "y", "grpo", 0, info={"started": "2026-01-02"})
    with_code(older, grpo="1", base="1"), with_code(later, grpo="2", base="1")
    (note,) = (note for note in notes_of(older, later) if "left out" in note)
    assert note.endswith("as far or further. The code of the two differs in algorithms/grpo.py.")
    with_code(older, grpo="2", base="1")
    (note,) = (note for note in notes_of(older, later) if "left out" in note)
    assert note.endswith("as far or further.")


def test_new_files_that_git_does_not_track_are_uncommitted_changes(tmp_path, make_run):
    facts = {"commit": "abc", "diff": {"file": "code.diff", "bytes": 9, "sha256": "0"}}
    notes = notes_of(make_run(tmp_path, "spo", 0, info=facts))
    assert "The code had uncommitted changes in compare/spo-0." in notes


def test_files_with_uncommitted_changes_are_named_but_for_new_ones_that_no_run_used(
    tmp_path, make_run
):
    def patch(file, new=False):
        head = f"diff --git a/{file} b/{file}\n" + "new file mode 100644\n" * new
        return f"{head}--- a/{file}\n+++ b/{file}\n@@ -0,0 +1 @@\n+diff --git a/x b/x\n"

    def said(*patches):
        (run / "code.diff").write_text("".join(patches))
        return [note for note in notes_of(run) if "uncommitted" in note]

    facts = {"commit": "abc", "diff": {"file": "code.diff", "bytes": 9, "sha256": "0"}}
    run = with_code(make_run(tmp_path, "spo", 0, info=facts), spo="1")
    mine, scratch = patch("conf/task/mine.yaml", new=True), patch("envs/scratch.py", new=True)
    assert said(mine, scratch) == []
    loss = patch("algorithms/spo.py", new=True)
    assert said(mine, loss, patch("conf/algo/ppo.yaml")) == [
        "algorithms/spo.py and conf/algo/ppo.yaml had uncommitted changes in compare/spo-0."
    ]
    (run / "digests.json").unlink()  # of an earlier version: what it used is not known
    assert said(mine, scratch) == ["envs/scratch.py had uncommitted changes in compare/spo-0."]


def test_different_provenance_is_told(tmp_path, make_run):
    changes = {"data_hash": "other", "judge_version": "2", "commit": "fedcba+", "sandbox": "docker"}
    notes = notes_of(make_run(tmp_path, "spo", 0), make_run(tmp_path, "ppo", 0, info=changes))
    for words in ("data hashes (d4ta and other)", "judge versions (1 and 2)", "commits", "sandbox"):
        assert any(f"2 different {words}" in note for note in notes)
    assert "The code had uncommitted changes in compare/ppo-0." in notes


def test_evaluations_that_differ_are_told(tmp_path, make_run):
    notes = notes_of(
        make_run(tmp_path, "spo", 0, problems=12, samples=20),
        make_run(tmp_path, "ppo", 0, problems=10, samples=12),
    )
    assert any("Not every row was evaluated on the same problems" in note for note in notes)
    assert any(note.startswith("Samples per problem differ, from 12 (") for note in notes)


def test_failures_of_the_judge_are_counted(tmp_path, make_run):
    path = make_run(tmp_path, "spo", 0)
    evals = pd.read_parquet(path / "evals.parquet")
    evals.loc[evals.index[:3], "verdict"] = "INFRA_ERROR"
    evals.to_parquet(path / "evals.parquet")
    assert any("the judge failed on 3 of 240 samples" in note for note in notes_of(path))


def test_an_engine_that_was_not_the_learner_is_told(tmp_path, make_run):
    good, wrong = make_run(tmp_path, "ppo", 0), make_run(tmp_path, "grpo", 0)
    for path, mean in ((good, 1e-6), (wrong, 0.2)):
        metrics = pd.read_parquet(path / "metrics.parquet")
        metrics.loc[::5, ["mismatch/mean", "mismatch/bound"]] = (mean, 1e-3)
        metrics.to_parquet(path / "metrics.parquet")
    matching = [note for note in notes_of(good, wrong) if "log-probs" in note]
    assert len(matching) == 1
    assert matching[0].startswith("grpo: in compare/grpo-0 the engine's log-probs differ")


def test_batches_that_held_nothing_to_learn_from_are_counted(tmp_path, make_run):
    raft, ppo = make_run(tmp_path, "raft", 0), make_run(tmp_path, "ppo", 0)
    metrics = pd.read_parquet(raft / "metrics.parquet")
    metrics["budget/optimiser_steps"] -= (metrics["step"] > 4).cumsum().clip(upper=3)
    metrics.to_parquet(raft / "metrics.parquet")
    notes = [note for note in notes_of(raft, ppo) if "nothing to learn from" in note]
    assert len(notes) == 1 and notes[0].endswith("(share of the steps): raft (15%).")


def test_the_test_split_outside_a_final_evaluation_is_told(tmp_path, make_run):
    seen = {"test_split_warning": "eval.split=test: ..."}
    looked = make_run(tmp_path, "spo", 0, info=seen)
    notes = notes_of(looked, make_run(tmp_path, "ppo", 0))
    assert next(note for note in notes if "the test split" in note).startswith(
        "On the test split outside a study's final evaluation: spo."
    )
    assert not any("test split" in note for note in notes_of(make_run(tmp_path / "a", "spo", 0)))


def test_an_evaluation_on_training_problems_is_told_of_a_run_that_trained(tmp_path, make_run):
    on_train = {"eval.split": "train"}
    seen = make_run(tmp_path, "spo", 0, config=on_train)
    other = make_run(tmp_path, "ppo", 0, config={"eval.split": "choose"})
    base = make_run(tmp_path, "grpo", 0, config=on_train | {"steps": 0})
    notes = [note for note in notes_of(seen, other, base) if "that were trained on" in note]
    assert len(notes) == 1 and "(eval.split=train): spo. These" in notes[0]


def test_a_diversity_over_different_problems_is_told_with_their_numbers(tmp_path, make_run):
    ppo, spo = make_run(tmp_path, "ppo", 0, skill=1.0), make_run(tmp_path, "spo", 0)
    (note,) = [note for note in notes_of(ppo, spo) if "over different problems" in note]
    assert note.startswith("distinct of 5 is a mean over different problems for each group (ppo ")
    assert not any("over different problems" in note for note in notes_of(ppo))


def test_samples_of_others_are_told(tmp_path, make_run):
    config = {"replay.from_runs": ["outputs/first/ppo-s0-20260101-000000"], "replay.files": []}
    notes = notes_of(make_run(tmp_path, "spo", 0, config=config), make_run(tmp_path, "ppo", 0))
    (matching,) = [note for note in notes if "other policies" in note]
    assert matching.startswith("spo learned from samples of other policies ")
    assert "(replay.from_runs=[first/ppo])" in matching


def test_a_corrected_ratio_is_told(tmp_path, make_run):
    config = {"train.correction": "truncated", "train.missing_logprobs": "reference"}
    notes = notes_of(make_run(tmp_path, "ppo", 0, config=config), make_run(tmp_path, "spo", 0))
    for word, setting in (("corrected", "train.correction=truncated"), ("log-probs", "=reference")):
        matching = [note for note in notes if word in note]
        assert len(matching) == 1
        assert matching[0].startswith("ppo: ")
        assert setting in matching[0]


def test_how_values_were_found_is_said_where_any_were_looked_for(tmp_path, make_run):
    way = "12 trials (steps=60)"
    tuned = [make_run(tmp_path, "spo", s, config={"tuned": way}) for s in (0, 1)]
    untuned = [make_run(tmp_path, "ppo", s) for s in (0, 1)]
    assert f"Tuned by {way}: spo. Not tuned, run with the given settings: ppo." in notes_of(
        *tuned, *untuned
    )
    tables = [
        make_run(tmp_path, algo, 0, config={"tuned": f"{way}, table {algo}.csv"})
        for algo in ("grpo", "sft")
    ]
    assert f"Tuned by {way}: grpo (grpo.csv), sft (sft.csv)." in notes_of(*tables)
    assert not any("Tuned" in note for note in notes_of(*untuned))


def test_evaluations_in_conversations_of_different_lengths_are_named(tmp_path, make_run):
    single = make_run(tmp_path, "spo", 0)
    talks = [add_conversations(make_run(tmp_path, name, 0)) for name in ("ppo", "grpo")]
    assert not any("different lengths" in note for note in notes_of(*talks))
    [note] = [note for note in notes_of(single, *talks) if "different lengths" in note]
    assert "from 1 (spo) to 3 (" in note
