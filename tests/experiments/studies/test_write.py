"""A study's page: every figure comes from the CSV files, and hand-written words are kept."""

import json
import re
import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest

from experiments.errors import UserError
from experiments.studies.page_sections import cost_sections
from experiments.studies.results.results import Results
from experiments.studies.results.sentences import Numbers
from experiments.studies.study import Claim
from experiments.studies.write import PROSE, main

STUDY = """
question: which is better
seeds: [0, 1, 2]
overrides: [steps=9]
arms:
  sft: {overrides: [algo=sft]}
  spo: {overrides: [algo=spo], weights_of: sft}
claims:
  - {says: SPO above SFT, a: spo, b: sft, metric: pass@1}
  - {says: SPO costs little, a: spo, b: sft, metric: pass@10, margin: 0.05}
  - {says: SPO is faster, a: spo, b: sft, metric: time}
gains: [[spo, sft]]
threats: [small]
left_out: {ppo: no time}
"""
ROW = {"seeds": 3, "generated_tokens": 1234.0, "judged_programs": 56.0}
ENDS = {"": 0.0, "_low": -0.1, "_high": 0.1}  # of an interval
SECONDS = {"sft": (10.0, 11.0, 12.0), "spo": (20.0, 22.0, 21.0)}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY)
    report = tmp_path / "study-s" / "report"
    report.mkdir(parents=True)
    arms, runs, table, gaps, letters, costs, equal = [], [], [], [], [], [], []
    for arm, seconds in SECONDS.items():
        for seed, second in enumerate(seconds):
            folder = tmp_path / "study-s" / f"{arm}-{seed}"
            folder.mkdir()
            last = {"time/total_s": [second + 5], "time/evaluate_s": [5.0], "memory/peak_mb": [9.0]}
            pd.DataFrame(last).to_parquet(folder / "metrics.parquet")
            one = {"arm": arm, "seed": seed, "trial": False, "status": "finished"}
            arms.append(one | {"run": str(folder), "overrides": []})
            runs.append({"path": str(folder), "group": f"{arm} x=1", "commit": "abc"})
        found = {}
        for metric, mean in (("pass@1", 0.5), ("pass@10", 0.7), ("distinct_of_5", 0.6)):
            found |= {metric: mean, f"{metric}_low": mean - 0.1, f"{metric}_high": mean + 0.1}
            letters.append({"label": f"{arm} x=1", "metric": metric, "letters": "a"})
        table.append({"label": f"{arm} x=1"} | ROW | found)
        costs.append({"label": f"{arm} x=1", "seeds": 3, "reference_s": 7.0, "trained_s": 1234.5})
    table.append({"label": "base name=nano path=assets/nano"} | ROW | found)
    there = {"mean": 0.4, "low": 0.3, "high": 0.5, "tier": 1}
    at = {"axis": "generated_tokens", "budget": 1000.0, "label": "spo x=1", "metric": "pass@1"}
    equal.append(at | there)
    for metric, gap in (("pass@1", (0.1, 0.02, 0.2)), ("pass@10", (0.0, -0.06, 0.1))):
        ends = dict(zip(("difference", "low", "high"), gap, strict=True))
        gaps.append({"a": "spo x=1", "b": "sft x=1", "metric": metric} | ends)
    (tmp_path / "study-s" / "arms.json").write_text(json.dumps(arms))
    (tmp_path / "study-s" / "report" / "contrasts.csv").write_text("experiment\n")  # none
    written = {
        "runs": runs,
        "table": table,
        "differences": gaps,
        "letters": letters,
        "costs": costs,
    }
    refused = {"axis": "flops", "label": "sft x=1", "metric": "pass@1", "evaluations": 1}
    fits = [refused | {"refused": "fewer than 4 evaluations after step 0"}]
    for name, rows in (written | {"equal_budget": equal, "curve_fits": fits}).items():
        pd.DataFrame(rows).to_csv(report / f"{name}.csv", index=False)
    return [f"study={tmp_path}/s.yaml", f"folder={tmp_path}/study-s", f"out={tmp_path}/page.md"]


def test_figures_claims_and_words_by_hand(study, tmp_path):
    assert main(study) == 0
    page = re.sub(" +", " ", (tmp_path / "page.md").read_text())
    assert "| spo | 3 | 0.500 [0.400, 0.600] | a | 0.700 [0.600, 0.800] | a |" in page
    assert "| base nano | 3 | 0.500 [0.400, 0.600] | – |" in page
    assert "(page.svg)" in page and ">spo</text>" in (tmp_path / "page.svg").read_text()
    assert "| SPO above SFT | pass@1: +0.100 [+0.020, +0.200] | **held** |" in page
    assert "| SPO costs little | pass@10: +0.000 [−0.060, +0.100] | **not decided** |" in page
    faster = next(line for line in page.splitlines() if "SPO is faster" in line)
    assert "time: +10 [" in faster and " s | **not held** |" in faster
    assert "| spo − sft | +0.100 [+0.020, +0.200] | +0.000 [−0.060, +0.100] | – |" in page
    assert "| sft | 1,234 | – | 56 | – | – | 7 | – | 1,234 | – | – |" in page
    assert "At 1,000 generated tokens, the reference's included:" in page
    assert (
        "| spo | 0.400 [0.300, 0.500] | 1 | – | – |" in page and "judged programs\n\n" not in page
    )
    assert "from the final weights of `sft`" in page and "- ppo: no time" in page
    (tmp_path / "page.md").write_text(page.replace(PROSE[0], f"{PROSE[0]}\nOur words."))
    assert main(study) == 0
    assert (tmp_path / "page.md").read_text().count("Our words.") == 1


def test_fitted_curves_stand_there_where_some_arm_has_evaluations_enough(study, tmp_path):
    file = tmp_path / "study-s" / "report" / "curve_fits.csv"
    assert main(study) == 0
    assert "more budget" not in (tmp_path / "page.md").read_text()
    fit = {"axis": "flops", "metric": "pass@1", "evaluations": 4, "refused": ""}
    values = {"A": 0.8, "B": 1.25, "at_twice": 0.6}
    ends = {f"{name}{end}": x + s for name, x in values.items() for end, s in ENDS.items()}
    error = {"second_half_rms": 0.0126, "second_half_last": -0.02}
    rows = [fit | {"label": "spo x=1"} | ends | error]
    rows += [fit | {"label": "sft x=1", "refused": "A not identified: no bend"}]
    pd.DataFrame(rows).to_csv(file, index=False)
    assert main(study) == 0
    page = re.sub(" +", " ", (tmp_path / "page.md").read_text())
    section = page.partition("### What more budget would bring")[2]
    assert "Over FLOPs:" in section and "Over generated tokens" not in section
    spo = "| spo | pass@1 | 0.800 [0.700, 0.900] | 1.250 [1.150, 1.350] | 0.600 [0.500, 0.700] |"
    assert f"{spo} 0.013, −0.020 |" in section
    assert "| sft | pass@1 | refused: A not identified: no bend | – | – | – |" in section
    numbers = Numbers(Results(tmp_path / "study-s"))
    assert numbers.text("spo.A of pass@1 over flops:interval") == ".800 [.700, .900]"
    assert numbers.text("spo.second_half_rms of pass@1 over flops") == ".013"
    for unknown in ("sft.A of pass@1 over flops", "spo.A of pass@1 over wall_time"):
        with pytest.raises(UserError, match="has no A of pass@1"):
            numbers.text(unknown)


def test_the_greatest_k_that_was_measured_is_shown(study, tmp_path):
    report = tmp_path / "study-s" / "report"
    for name in ("table", "differences", "letters", "equal_budget"):
        file = report / f"{name}.csv"
        file.write_text(file.read_text().replace("pass@10", "pass@5"))
    (tmp_path / "s.yaml").write_text(STUDY.replace("pass@10", "pass@5"))
    assert main(study) == 0
    page = (tmp_path / "page.md").read_text()
    heading = next(line for line in page.splitlines() if line.startswith("| arm"))
    assert "pass@5" in heading and "pass@10" not in page
    side = page.partition("### Side by side")[2]
    assert "| +0.000 [−0.060, +0.100] |" in side


def test_what_holds_after_correction_is_marked(study, tmp_path):
    rows = [
        {"metric": "pass@1", "margin": 0.0, "answer": "below"},  # sft − spo
        {"metric": "pass@10", "margin": 0.0, "answer": "not decided"},
        {"metric": "pass@10", "margin": 0.05, "answer": "above"},
    ]
    arms = [("sft", "spo"), ("sft", "spo"), ("spo", "sft")]
    named = [
        {"a": f"{a} x=1", "b": f"{b} x=1"} | row for (a, b), row in zip(arms, rows, strict=True)
    ]
    pd.DataFrame(named).to_csv(tmp_path / "study-s" / "report" / "contrasts.csv", index=False)
    differences = tmp_path / "study-s" / "report" / "differences.csv"
    differences.write_text(differences.read_text().replace("-0.06", "-0.01"))
    assert main(study) == 0
    page = re.sub(" +", " ", (tmp_path / "page.md").read_text())
    assert "| SPO above SFT | pass@1: +0.100 [+0.020, +0.200] | **held after correction** |" in page
    assert "pass@10: +0.000 [−0.010, +0.100] | **held after correction** |" in page
    assert (
        "| spo − sft | +0.100 [+0.020, +0.200] \\* | +0.000 [−0.010, +0.100] | – |" in page
        and "\\* separated, after Holm's correction for the pairs" in page
    )


def test_a_folder_that_moved_gives_the_same_page(study, tmp_path, monkeypatch):
    assert main(study) == 0
    page = (tmp_path / "page.md").read_text()
    (tmp_path / "study-s").rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    out = tmp_path / "elsewhere" / "page.md"
    assert main([study[0], f"folder={tmp_path}/moved", f"out={out}"]) == 0
    assert out.read_text() == page


def test_of_a_study_run_in_part_the_page_says_so(study, tmp_path):
    assert main(study) == 0
    assert "\n6 runs finished, at commit abc.\n" in (tmp_path / "page.md").read_text()
    arms = tmp_path / "study-s" / "arms.json"
    arms.write_text(json.dumps([one for one in json.loads(arms.read_text()) if one["seed"] != 2]))
    assert main(study) == 0
    assert "\n4 of the 6 runs finished, at commit abc.\n" in (tmp_path / "page.md").read_text()


def test_what_was_chosen_and_the_order(study, tmp_path, capsys):
    more = (
        "order_by: pass@1\nchoice: {key: x.y, values: [0.1, 0.2], overrides: [steps=3], seed: 7}\n"
    )
    (tmp_path / "s.yaml").write_text(STUDY.replace(", weights_of: sft", "") + more)
    folder = tmp_path / "study-s"
    arms = json.loads((folder / "arms.json").read_text())
    for one in arms:
        one["overrides"] = ["x.y=0.5", "x.y=0.2"]
    short = {"arm": "spo", "seed": 7, "trial": True, "run": "", "overrides": ["x.y=0.2"]}
    arms += [short | {"status": "finished", "score": 0.25}]
    arms += [short | {"status": "failed", "score": None, "overrides": ["x.y=0.1"]}]
    (folder / "arms.json").write_text(json.dumps(arms))
    table = pd.read_csv(folder / "report" / "table.csv")
    table.loc[table["label"] == "spo x=1", "pass@1"] = 0.6
    table.to_csv(folder / "report" / "table.csv", index=False)
    assert main(study) == 0
    page = re.sub(" +", " ", (tmp_path / "page.md").read_text())
    assert "| spo | 0.2 | – | 0.250 |\n| sft | 0.2 | – | – |" in page
    rows = [line for line in page.splitlines() if line.startswith(("| spo | 3", "| sft | 3"))]
    assert [row[2:5] for row in rows] == ["spo", "sft"]
    (tmp_path / "s.yaml").write_text(STUDY + "order_by: pass@one\n")
    assert main(study) == 2
    assert "order_by=pass@one: not a column" in capsys.readouterr().err


def at_temperature_1(folder):
    """Add results at temperature 1 to the report: the main ones, less .2."""
    table = pd.read_csv(folder / "report" / "table.csv")
    for metric in ("pass@1", "pass@10", "distinct_of_5"):
        for end in ("", "_low", "_high"):
            table[f"{metric} (T=1){end}"] = table[metric + end] - 0.2
    table.to_csv(folder / "report" / "table.csv", index=False)
    for name in ("differences", "letters"):
        rows = pd.read_csv(folder / "report" / f"{name}.csv")
        there = rows.assign(metric=rows["metric"] + " (T=1)")
        if name == "differences":
            there[["difference", "low", "high"]] -= 0.2
        pd.concat([rows, there]).to_csv(folder / "report" / f"{name}.csv", index=False)


def test_a_further_temperature_has_a_table_of_results_and_one_of_differences(study, tmp_path):
    assert main(study) == 0
    plain = (tmp_path / "page.md").read_text()
    assert "temperature" not in plain
    at_temperature_1(tmp_path / "study-s")
    more = "  - {says: as diverse when hot, a: spo, b: sft, metric: pass@1 (T=1)}\ngains"
    (tmp_path / "s.yaml").write_text(STUDY.replace("gains", more))
    assert main(study) == 0
    page = re.sub(" +", " ", (tmp_path / "page.md").read_text())
    before, _, there = page.partition("### At temperature 1\n")
    there = there.partition("\n#")[0]
    assert before.endswith(
        re.sub(" +", " ", plain).partition("## Claims")[0].partition("## Que")[2]
    )
    heading = (
        "| arm | seeds | pass@1 (T=1) | letters | pass@10 (T=1) | letters | distinct_of_5 (T=1) |"
    )
    assert heading in there
    assert "| spo | 3 | 0.300 [0.200, 0.400] | a | 0.500 [0.400, 0.600] | a |" in there
    assert "| base nano | 3 | 0.300 [0.200, 0.400] | – |" in there
    difference = "| spo − sft | −0.100 [−0.180, +0.000] | −0.200 [−0.260, −0.100] | – |"
    assert there.count("| spo − sft") == 1 and difference in there  # in gains and in claims
    assert "| pass@1 (T=1): −0.100 [−0.180, +0.000] | **not decided** |" in page


@pytest.mark.parametrize(("given", "known"), [(True, "1"), (False, "none")])
def test_a_claim_at_an_unknown_temperature_is_refused(given, known, study, tmp_path, capsys):
    if given:
        at_temperature_1(tmp_path / "study-s")
    claim = "  - {says: hot, a: spo, b: sft, metric: pass@1 (T=1.0)}\ngains"
    (tmp_path / "s.yaml").write_text(STUDY.replace("gains", claim))
    assert main(study) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "'hot' is on pass@1 (T=1.0)" in told and f"runs are: {known};" in told


def test_a_claim_on_a_k_that_no_run_measured_is_refused(study, tmp_path, capsys):
    claim = "  - {says: more, a: spo, b: sft, metric: pass@3}\ngains"
    (tmp_path / "s.yaml").write_text(STUDY.replace("gains", claim))
    assert main(study) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "'more' is on pass@3, but the runs have pass@1, pass@" in told


def test_a_study_that_has_not_ended_is_one_line(study, tmp_path, capsys):
    (tmp_path / "study-s" / "arms.json").unlink()
    assert main(study) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "arms.json is missing" in told


def test_a_missing_report_is_made_with_what_the_study_names(study, tmp_path, capsys, monkeypatch):
    """Of run folders without one, as from an archive; if it fails there is no page."""
    (tmp_path / "s.yaml").write_text(STUDY + "margin: 0.05\ncontrol: sft\n")
    folder = tmp_path / "study-s"
    (folder / "report").rename(tmp_path / "made")
    asked = []

    def run(command, **_):
        asked.append(command[1:])
        if len(asked) > 1:
            (tmp_path / "made").rename(folder / "report")
        return subprocess.CompletedProcess(command, int(len(asked) == 1))

    monkeypatch.setattr("experiments.studies.run.subprocess", SimpleNamespace(run=run))
    assert main(study) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "the report, which the page is written from, failed" in error
    assert not (tmp_path / "page.md").exists()
    assert main(study) == main(study) == 0
    where = [f"runs={folder}", f"out={folder}/report", "margin=0.05", "control=sft"]
    assert asked == [["-m", "analysis.report", *where]] * 2
    assert "\n6 runs finished" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("margin", "low", "high", "verdict"),
    [
        (None, 0.01, 0.2, "held"),
        (None, -0.01, 0.2, "not decided"),
        (None, -0.2, -0.01, "not held"),
        (None, 0.0, 0.0, "not decided"),
        (0.05, -0.04, 0.2, "held"),
        (0.05, -0.06, 0.2, "not decided"),
        (0.05, -0.2, -0.06, "not held"),
    ],
)
def test_what_an_interval_decides(margin, low, high, verdict):
    assert Claim("", "a", "b", "pass@1", margin).verdict(low, high) == verdict


def test_values_on_a_straight_line_are_called_so():
    costs, budgets = pd.DataFrame({"steps": [2.0]}, index=["ppo"]), pd.DataFrame({"axis": []})
    for between in (True, False):
        page = "".join(
            cost_sections({"ppo": "ppo"}, costs, budgets, ("pass@1", "pass@10"), between)
        )
        assert ("were not measured" in page) == (not between)
