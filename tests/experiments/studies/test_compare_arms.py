"""Two arms of a study: the numbers of its report, from run folders and from a packed study."""

import json
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest

from analysis.compare import by_themselves, print_comparison, within_study
from analysis.compare import main as compare
from analysis.report import main as report
from experiments.studies.pack import main as pack
from experiments.studies.study import read

STUDY = """
question: which is better
seeds: [0, 1, 2]
margin: 0.05
control: sft
overrides: [steps=20]
arms:
  sft: {overrides: [algo=sft]}
  spo: {overrides: [algo=spo]}
  spo_beta0.3: {overrides: [algo=spo, algo.beta=0.3]}
  grpo: {overrides: [algo=grpo]}
claims:
  - {says: a larger beta costs little, a: spo_beta0.3, b: spo, metric: pass@10, margin: 0.05}
gains: [[spo, sft], [grpo, sft]]
threats: [small]
"""
# skill, and how much it differs from seed to seed
ARMS = {"sft": (2.0, 0.0), "spo": (5.0, 1.0), "spo_beta0.3": (6.0, 0.5), "grpo": (8.0, 0.0)}
NAMED = ("margin=0.05", "control=sft")


@pytest.fixture(scope="module")
def study(tmp_path_factory, make_run):
    """The folder of a study; the run folders of two arms share the prefix spo-."""
    root = tmp_path_factory.mktemp("study")
    (root / "s.yaml").write_text(STUDY)
    folder, arms = root / "study-s", []
    for number, (arm, (skill, spread)) in enumerate(ARMS.items()):
        algo, _, beta = arm.partition("_beta")
        config = {"algo.beta": float(beta or 0.1), "name": "study-s"}
        for seed in range(3):
            skills = {"skill": skill + spread * seed}
            made = make_run(root / arm, algo, seed, samples=10, **skills, config=config)
            run = folder / f"{algo}-s{seed}-20261126-21000{number}"
            folder.mkdir(exist_ok=True)
            made.rename(run)
            one = {"arm": arm, "seed": seed, "trial": False, "status": "finished", "score": None}
            arms.append(one | {"run": f"outputs/study-s/{run.name}", "overrides": []})
    (folder / "arms.json").write_text(json.dumps(arms))
    (folder / "contrasts.json").write_text(json.dumps(read(str(root / "s.yaml")).contrasts))
    return folder


@pytest.fixture(scope="module")
def packed(tmp_path_factory, study):
    out = tmp_path_factory.mktemp("packed") / "study-s"
    assert pack([f"study={study.parent}/s.yaml", f"folder={study}", f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module", params=["run folders", "packed"])
def reported(request, tmp_path_factory, study, packed):
    """A study, what its report was told of it, and the report's folder."""
    folder, named = (study, NAMED) if request.param == "run folders" else (packed, ())
    out = tmp_path_factory.mktemp("report")
    assert report([f"runs={folder}", f"out={out}", *named]) == 0
    return folder, named, out


@cache
def within(folder, named, a, b):
    margin, control = (0.05, "sft") if named else (None, None)
    return within_study(folder, a, b, margin, control if control in (a, b) else None)


@pytest.mark.parametrize(("a", "b"), [("spo", "sft"), ("spo", "spo_beta0.3")])
def test_two_arms_have_the_numbers_of_the_report(reported, a, b):
    folder, named, out = reported
    found = within(folder, named, a, b)
    rows = pd.read_csv(out / "differences.csv").query("a == @a and b == @b")
    assert rows["metric"].tolist() == [pair.metric for pair in found.pairs] and len(rows) >= 5
    d = [pair.difference for pair in found.pairs]
    mine = {
        "difference": [one.mean for one in d],
        "low": [one.low for one in d],
        "high": [one.high for one in d],
        "probability_of_improvement": [pair.improvement for pair in found.pairs],
        "seeds": [pair.seeds for pair in found.pairs],
        "problems": [pair.problems for pair in found.pairs],
        "p": found.p["p"],
        "p_contrasts": [pair.contrast_p for pair in found.pairs],
        "p_equal": [pair.equal_p for pair in found.pairs],
        "seeds_to_decide": [
            np.nan if pair.answer != "not decided" else pair.seeds_to_decide for pair in found.pairs
        ],
    }
    assert rows["p_equal"].notna().any()
    for column, values in mine.items():
        np.testing.assert_array_equal(values, rows[column], err_msg=column)


def test_what_was_named_ahead_has_the_p_values_of_the_report(reported):
    folder, named, out = reported
    against = within(folder, named, "spo", "sft")
    control = pd.read_csv(out / "control.csv").query("group == 'spo'")
    np.testing.assert_array_equal(against.p["p, control"], control["p"])
    assert control["p"].notna().any() and against.p["p, named"][0] < against.p["p"][0]
    other = within(folder, named, "spo", "spo_beta0.3")
    assert list(other.p) == ["p"]
    (claim,) = other.claims
    (row,) = pd.read_csv(out / "contrasts.csv").query("margin > 0").to_dict("records")
    assert (claim.pair.a, claim.pair.b, claim.pair.metric) == (row["a"], row["b"], row["metric"])
    assert (claim.p, claim.answer) == (row["p"], row["answer"])


def test_without_the_study_two_groups_have_other_intervals(study):
    spo, sft = f"{study}/spo-*-210001", f"{study}/sft-*"
    alone = by_themselves(spo, sft, None).pairs[0]
    whole = within(study, NAMED, "spo", "sft").pairs[0]
    assert alone.metric == whole.metric == "pass@1"
    assert alone.difference.mean == whole.difference.mean
    assert abs(alone.difference.low - whole.difference.low) > 0.005


def test_the_output_names_the_corrections_and_what_the_spread_is_of(reported, capsys):
    folder, named, out = reported
    assert compare([f"study={folder}", "a=spo", "b=sft", *named]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Two of the 4 groups of study-s, with the numbers of its report: the spread" in printed
    assert "p: Holm's correction over all 6 pairs." in printed
    assert "p, named: Holm's over the pairs that the study named before its runs." in printed
    assert "p, control: Dunnett's over the 3 comparisons with sft." in printed
    (row,) = (
        pd.read_csv(out / "differences.csv")
        .query("a == 'spo' and b == 'sft' and metric == 'pass@10'")
        .to_dict("records")
    )
    ends = f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]".replace("-", "−")
    p = rf"{row['p']:.3f} {row['p_contrasts']:.3f} \d\.\d{{3}} 3 12 "
    assert re.search(rf" pass@10 \S+ \S+ {re.escape(ends)} \S+ {p}", printed)
    assert "alone" not in printed
    print_comparison(within(folder, named, "spo", "spo_beta0.3"), 0.05)
    printed = " ".join(capsys.readouterr().out.split())
    assert "pass@10, claimed before the runs: " in printed and "Dunnett" not in printed


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        ("study={study} a=sppo b=sft", 1, "a=sppo: no such arm; did you mean 'spo'? arms of "),
        ("study={study} a=spo b=spo-*", 1, "b=spo-*: no such arm; "),
        ("study={study} a=spo b=spo", 2, "b=spo: the same arm as a; give another"),
        ("study={study} a=spo b=sft control=grpo", 2, "control=grpo: must be a=spo or b=sft"),
        ("a=spo b=sft control=sft", 2, "control=sft: only with study=FOLDER"),
        ("study={study}/none a=spo b=sft", 1, "study-s/none: no such folder; give that of a study"),
        ("study={study}/.. a=spo b=sft", 1, "arms.json is missing; a study's command writes it"),
        ("a={packed} b={packed}", 1, "`make compare STUDY=FOLDER A=ARM B=ARM`"),
    ],
)
def test_a_mistake_is_one_line(study, packed, capsys, arguments, code, fault):
    given = arguments.format(study=study, packed=packed).split()
    assert compare(given) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and fault in error


def changed(study, tmp_path, change):
    """A folder with the study's runs and another arms.json."""
    folder = tmp_path / "study-s"
    folder.mkdir()
    for run in study.glob("*-s*"):
        (folder / run.name).symlink_to(run)
    arms = json.loads((study / "arms.json").read_text())
    (folder / "arms.json").write_text(change(arms))
    return folder


def mix(arms):
    """As if a run of grpo were one of sft."""
    return json.dumps([one | {"arm": "sft" if one["seed"] == 1 else one["arm"]} for one in arms])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda arms: json.dumps(arms)[:-9], "arms.json cannot be read"),
        (mix, "b=sft: its runs differ in more than the seed and are 4 groups (grpo, sft, spo "),
        (
            lambda arms: json.dumps([one | {"run": None} for one in arms]),
            "no run of a is in there",
        ),
    ],
)
def test_an_arms_file_that_does_not_fit_the_runs_is_one_line(
    study, tmp_path, capsys, change, fault
):
    assert compare([f"study={changed(study, tmp_path, change)}", "a=spo", "b=sft"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and fault in error
