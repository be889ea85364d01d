"""What was named before the runs, from the command line and a study's files to the report."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from analysis.experiment import Plan, build_experiment
from analysis.findings import (
    control_statements,
    decision_needs,
    difference_matrix,
    equality_statements,
    headlines,
)
from analysis.report import main
from analysis.runs import load_run

SMALL = {"problems": 20, "samples": 10, "every": 20}
SKILLS = {"grpo": 1.5, "ppo": 1.5, "spo": 8.0}


@pytest.fixture(scope="module")
def study(tmp_path_factory, make_run):
    """Three arms of three seeds, the files that a study leaves beside them, and their report."""
    folder, entries = tmp_path_factory.mktemp("named"), []
    for algo, skill in SKILLS.items():
        for seed in range(3):
            path = make_run(folder, algo, seed, skill=skill, **SMALL)
            entries.append({"arm": f"{algo}_arm", "seed": seed, "run": str(path)})
    named = [
        {"a": "spo_arm", "b": "ppo_arm", "metric": None, "margin": None},
        {"a": "ppo_arm", "b": "grpo_arm", "metric": "pass@10", "margin": 0.9},
    ]
    (folder / "compare" / "arms.json").write_text(json.dumps(entries))
    (folder / "compare" / "contrasts.json").write_text(json.dumps(named))
    out = folder / "report"
    assert main([f"runs={folder}/compare", f"out={out}", "margin=0.5", "control=ppo_arm"]) == 0
    return folder / "compare", out


def test_the_tables_have_the_three_families(study):
    _, out = study
    differences = pd.read_csv(out / "differences.csv").set_index(["a", "b", "metric"])
    at = differences.loc[("spo_arm", "ppo_arm", "pass@1")]
    assert at["answer"] == "above" and at["margin"] == 0.5 and at["p"] < 0.05
    assert at["p_contrasts"] < at["p"]  # one contrast on pass@1, three pairs
    assert differences.loc[("grpo_arm", "ppo_arm", "pass@1"), "answer"] == "equal"
    assert pd.isna(differences.loc[("grpo_arm", "ppo_arm", "distinct_2"), "answer"])
    control = pd.read_csv(out / "control.csv").set_index(["group", "metric"])
    assert set(control["control"]) == {"ppo_arm"}
    assert control.loc[("spo_arm", "pass@1"), "answer"] == "above"
    assert control.loc[("grpo_arm", "pass@1"), "answer"] == "equal"
    contrasts = pd.read_csv(out / "contrasts.csv")
    claim = contrasts[contrasts["margin"] == 0.9]
    assert list(claim["metric"]) == ["pass@10"] and list(claim["answer"]) == ["above"]


def test_the_answer_says_them(study):
    _, out = study
    text = (out / "table.md").read_text()
    named, holm = (
        "Named before the runs ",
        "; corrected for these alone, so smaller differences can be significant",
    )
    assert f"{named}(1 pair): spo_arm above ppo_arm." in text
    assert f"{named}(2 pairs{holm}): ppo_arm less than 0.9 below grpo_arm; 1 not decided." in text
    against = "Against ppo_arm alone (Dunnett, 2 comparisons), above: spo_arm; "
    assert f"{against}equal within 0.5: grpo_arm." in text
    assert "Equal within 0.5: grpo_arm and ppo_arm." in text
    page = (out / "report.html").read_text()
    assert "= if they are equal within 0.5; † if the pair was named before the runs" in page


def test_the_matrix_marks_equal_and_named_pairs(study):
    runs, _ = study
    loaded = [load_run(path) for path in sorted(runs.glob("*-*"))]
    experiment = build_experiment("compare", loaded, Plan(margin=0.5))
    _, rows = difference_matrix(experiment, "pass@1", intervals=False)
    cells = {(row[0], label): row[1 + i] for row in rows for i, label in enumerate(SKILLS)}
    assert cells["grpo_arm", "ppo"].endswith(" =")
    assert cells["spo_arm", "ppo"].endswith(" † *") and cells["ppo_arm", "spo"].endswith(" † *")
    assert cells["spo_arm", "grpo"].endswith(" *") and "†" not in cells["spo_arm", "grpo"]
    assert experiment.against_control == []
    plain = replace(experiment, plan=Plan(), named_contrasts=())
    for statement in (s for headline in headlines(plain) for s in headline.statements):
        assert "before the runs" not in statement and "within" not in statement


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["control=ppoarm"], 1, "control=ppoarm: no such group; did you mean 'ppo_arm'?"),
        (["control=x"], 1, "control=x: no such group; the groups are: grpo_arm, ppo_arm, spo_arm"),
        (["margin=0"], 2, "margin='0'"),
        (["margin=3"], 2, "margin='3'; it must be below 1"),
    ],
)
def test_a_wrong_name_or_margin_is_one_line(study, tmp_path, capsys, arguments, code, fault):
    assert main([f"runs={study[0]}", f"out={tmp_path / 'new'}", *arguments]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and fault in error
    assert not (tmp_path / "new").exists()


def test_what_is_open_says_what_it_takes(study):
    loaded = [load_run(path) for path in sorted(study[0].glob("*-*"))]
    experiment = build_experiment("compare", loaded, Plan(margin=0.01))
    (pair,) = [
        p for p in experiment.pairs if (p.a, p.b, p.metric) == ("grpo_arm", "ppo_arm", "pass@1")
    ]
    inf = float("inf")
    by_seeds = replace(pair, seeds_to_decide=12.0, problems_to_decide=inf)
    by_problems = replace(pair, seeds_to_decide=inf, problems_to_decide=900.0)
    by_both = replace(pair, seeds_to_decide=inf, problems_to_decide=inf)
    assert decision_needs([by_seeds, replace(by_seeds, seeds_to_decide=7.0)]) == (
        "an answer takes 7 to 12 seeds"
    )
    assert decision_needs([by_problems]) == "no number of seeds suffices, but 900 problems would"
    assert decision_needs([by_seeds, by_problems, by_both]) == (
        "an answer takes 12 seeds, for 1 of them no number of seeds suffices, but 900 problems "
        "would, for 1 of them an answer takes more of both seeds and problems"
    )
    (said,) = equality_statements([by_seeds])
    assert said == "Not decided within 0.01: 1 of 1 pair; an answer takes 12 seeds."


def test_a_control_without_a_margin_and_without_a_test(study):
    loaded = [load_run(path) for path in sorted(study[0].glob("*-*"))]
    experiment = build_experiment("compare", loaded, Plan(control="ppo_arm"))
    compared = [pair for pair in experiment.against_control if pair.metric == "pass@1"]
    (said,) = control_statements(compared)
    assert said.endswith("above: spo_arm; not decided: grpo_arm.")
    (said,) = control_statements([replace(one, adjusted_p=float("nan")) for one in compared])
    assert said == "Against ppo_arm nothing was tested: no group shares two seeds with it."
    assert control_statements([]) == []
