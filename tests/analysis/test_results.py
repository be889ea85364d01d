"""Packed studies give the numbers of their run folders; pages and quotes are held to them."""

import json
import shutil
from statistics import stdev

import numpy as np
import pandas as pd
import pytest
import yaml
from pandas.testing import assert_frame_equal

from analysis.compare import main as compare
from analysis.experiment import read_experiment
from analysis.results import Cell, Results, loose_numbers, main, results_of
from analysis.runs import RunError, load_run
from analysis.tables import experiment_tables
from experiments.study import read
from tests.analysis.conversations import add_conversations
from tests.command_line import ROOT

STUDY = """
question: which is better
seeds: [0, 1]
arms:
  ppo: {overrides: [algo=ppo]}
  spo-x_1.5: {overrides: [algo=spo]}
claims:
  - {says: SPO above PPO, a: spo-x_1.5, b: ppo, metric: pass@1}
  - {says: SPO above PPO when hot, a: spo-x_1.5, b: ppo, metric: pass@10 (T=1)}
  - {says: PPO at most .9 below, a: ppo, b: spo-x_1.5, metric: pass@1, margin: 0.9}
  - {says: SPO takes less memory, a: spo-x_1.5, b: ppo, metric: memory}
gains: [[spo-x_1.5, ppo]]
"""
STUDY_HERE = "study-real"
SKILL = {"ppo": 4.0, "spo-x_1.5": 8.0}


def blocks(*names):
    return "".join(f"<!-- {name} -->\n\n<!-- end -->\n\n" for name in names)


PAGE = blocks("table: pass@1; generated_tokens", "differences: pass@1", "claims")


@pytest.fixture
def repository(tmp_path, make_run, add_further):
    """A repository with one packed study, s, and the study's folder beside it."""
    results_of.cache_clear()
    (tmp_path / "s.yaml").write_text(STUDY)
    arms = []
    for arm, skill in SKILL.items():
        for seed in (0, 1):
            config = {"eval.further_temperatures": [], "eval.split": "choose", "train.lag": 8}
            config |= {"train.reference_every": None, "algo.q0": "monte_carlo"}
            path = make_run(tmp_path, arm.partition("-")[0], seed, skill=skill, config=config)
            metrics = pd.read_parquet(path / "metrics.parquet")
            metrics["memory/peak_mb"] = 100.0 + 10 * seed + len(arm)
            metrics.to_parquet(path / "metrics.parquet", index=False)
            evals = load_run(path).evals
            add_further(path, 1.0, evals[evals["step"] != 10].sample(frac=1, random_state=seed))
            head = {"arm": arm, "seed": seed, "trial": False, "status": "finished"}
            arms.append(head | {"run": f"study-s/{path.name}", "overrides": []})
    folder = (tmp_path / "compare").rename(tmp_path / "study-s")
    (folder / "arms.json").write_text(json.dumps(arms))
    named = [{"a": "spo-x_1.5", "b": "ppo", "metric": None, "margin": None}]
    (folder / "contrasts.json").write_text(json.dumps(named))
    (tmp_path / "README.md").write_text("no number\n")
    (tmp_path / "docs" / "results").mkdir(parents=True)
    return tmp_path


def pack(root):
    status = main([f"pack={root / 'study-s'}", f"study={root / 's.yaml'}", f"root={root}"])
    assert status == 0
    return root / "docs" / "results" / "study-s"


def tables(paths):
    experiment, _ = read_experiment("s", paths)
    return experiment_tables(experiment)


@pytest.mark.parametrize("turns", [False, True])
def test_counts_give_the_tables_of_the_run_folders(repository, turns):
    runs = sorted(path for path in (repository / "study-s").iterdir() if path.is_dir())
    if turns:
        for run in runs:
            add_conversations(run)
    packed, of_runs = tables([pack(repository)]), tables(runs)
    names = ["differences.csv", "letters.csv", "costs.csv", "equal_budget.csv"]
    for name in names + ["turns.csv"] * turns:
        parts = [of_runs[name], packed[name].dropna(how="all", axis=1)]
        if "metric" in parts[0]:  # texts of programs are not packed
            texts = "edit|distinct.2|token_entropy"
            parts = [p[~p["metric"].str.match(texts)].reset_index(drop=True) for p in parts]
        kept, counted = parts
        both = kept.columns.intersection(counted.columns)
        assert_frame_equal(counted[both], kept[both], check_dtype=False)


def test_a_page_is_filled_and_then_without_fault(repository, capsys):
    page = pack(repository).with_suffix(".md")
    assert "which is better" in page.read_text()  # a first page, to be completed by hand
    page.write_text(PAGE)
    assert main([f"root={repository}", "write=true"]) == 0
    text = page.read_text()
    assert "| spo-x_1.5 − ppo |" in text and "**held" in text and "MB" in text
    assert main([f"root={repository}"]) == 0
    assert "faults: 0" in capsys.readouterr().out
    page.write_text(text.replace("**held**", "**not held**"))
    assert main([f"root={repository}"]) == 1
    assert "study-s.md:" in capsys.readouterr().out


def test_each_quote_is_held_to_its_cell(repository, capsys):
    results = Results(pack(repository))
    main([f"root={repository}", "write=true"])
    gap = results.quote("spo-x_1.5 - ppo", "pass@1")
    right = [
        f"{results.quote('ppo', 'pass@1', 'interval')}<!--= s; ppo; pass@1; interval -->",
        f"{gap}<!--= s; spo-x_1.5 - ppo; pass@1 -->",
        f"{gap.lstrip('+')}<!--= s; spo-x_1.5 - ppo; pass@1; unsigned -->",
        f"{results.quote('ppo', 'area')}<!--= s; ppo; area -->",
        f"{results.quote('ppo', 'loss in second half', 'range')}"
        "<!--= s; ppo; loss in second half; range -->",
    ]
    readme = repository / "README.md"
    readme.write_text("\n".join(right))
    assert main([f"root={repository}"]) == 0
    wrong = [
        ".999<!--= s; ppo; pass@1 -->",
        f"1{results.quote('ppo', 'pass@1')}<!--= s; ppo; pass@1 -->",  # another number's end
        "0<!--= s; nobody; pass@1 -->",
        "0<!--= s; ppo; pass@7 -->",
    ]
    readme.write_text("\n".join(wrong))
    capsys.readouterr()
    assert main([f"root={repository}"]) == 1
    out = capsys.readouterr().out
    assert [f"README.md:{line}:" in out for line in range(1, 5)] == [True] * 4


def test_a_verdict_is_the_intervals_and_a_spread_is_over_seeds(repository, capsys):
    results = Results(pack(repository))
    pair = "spo-x_1.5 - ppo"
    assert results.quote(pair, "pass@1", "verdict").startswith("held")
    assert results.cell(pair, "pass@1").low > 0 and results.cell(pair, "memory").low > 0
    assert results.quote(pair, "memory", "verdict") == "not held"  # less is better
    assert results.tests[frozenset(SKILL), "pass@1"][0] > 0
    last = [run.evals[run.evals["step"] == 20] for run in results.runs("ppo")]
    ends = [float((samples["verdict"] == "ACCEPTED").mean()) for samples in last]
    assert results.cell("ppo", "spread of pass@1").mean == pytest.approx(stdev(ends))
    first, least = results.runs("ppo")[0].evaluated_steps[0], min(ends)
    assert results.quote("ppo", "steps to .0 of pass@1") == str(first)
    assert results.quote("ppo", f"steps to {least:.4f} of pass@1") == "20"
    assert results.row("ppo", ["steps to 1 of pass@1"]) == ["–"]
    assert compare([f"study={results.folder}", "a=spo-x_1.5", "b=ppo"]) == 0
    assert f"{results.cell(pair, 'pass@1').mean:.3f}"[1:] in capsys.readouterr().out


def test_interactions_and_ranks_are_on_the_page_and_are_quoted(repository, make_run):
    folder = repository / "study-s"
    arms = json.loads((folder / "arms.json").read_text())
    skills = {"ppo_1m": 2.0, "spo_1m": 8.0, "ppo_5m": 8.0, "spo_5m": 2.0}
    for lag, (arm, skill) in enumerate(skills.items(), 9):
        for seed in (0, 1):
            config = {"eval.further_temperatures": [], "eval.split": "choose", "train.lag": lag}
            path = make_run(repository, arm[:3], seed, skill=skill, config=config)
            run = path.rename(folder / f"{arm}-{seed}").name
            arms.append({**arms[0], "arm": arm, "seed": seed, "run": run})
    (folder / "arms.json").write_text(json.dumps(arms))
    study, file = yaml.safe_load(STUDY), repository / "s.yaml"
    study["arms"] |= {arm: {} for arm in skills}
    claim = {"a": "spo_1m", "b": "spo-x_1.5", "over": ["ppo_1m", "ppo"], "metric": "pass@1"}
    study["claims"] = [{"says": "SPO loses less", **claim}]
    file.write_text(yaml.safe_dump(study))
    (folder / "contrasts.json").write_text(json.dumps(read(str(file)).contrasts))
    page = pack(repository).with_suffix(".md")
    results = Results(page.with_suffix(""))
    row = "(spo_1m - spo-x_1.5) - (ppo_1m - ppo)"
    means = [results.cell(arm, "pass@1").mean for arm in ("spo_1m", *reversed(SKILL), "ppo_1m")]
    assert results.cell(row, "pass@1").mean == pytest.approx(np.dot([1, -1, 1, -1], means))
    quote = results.quote(row, "pass@1")
    tau = "−1.000<!--= 1m - 5m; tau of pass@1; mean -->"
    page.write_text(f"{PAGE}{blocks('ranks')}\n{quote}<!--= {row}; pass@1 --> {tau}\n")
    assert main([f"root={repository}", "write=true"]) == 0
    assert f"| SPO loses less | pass@1: {quote} |" in page.read_text()
    cells = [cell.strip() for cell in page.read_text().partition("| 1m, 5m")[2].split("|")]
    assert cells[1:5] == ["pass@1", "−1.000 [−1.000, −1.000]", "spo > ppo", "ppo > spo"]
    assert cells[5].startswith("spo/ppo") and main([f"root={repository}"]) == 0
    named = tables([page.with_suffix("")])["contrasts.csv"]
    assert "(spo_1m - spo-x_1.5)" in named["a"].tolist()
    with pytest.raises(ValueError, match="has no pass@7"):
        results.quote(row, "pass@7")


def test_a_page_has_the_table_of_implied_values(repository):
    folder = repository / "study-s" / "values"
    folder.mkdir()
    head = "arm,step,writer,statistic,target,predictor,mean,low,high,seeds\n"
    rows = "ppo,20,base,auc,accepted,logp,.7,.6,.8,2\nppo,20,base,slope,soft,Q,-.1,-.2,0,2\n"
    (folder / "values.csv").write_text(head + rows)
    (folder / "values.svg").write_text("<svg/>")
    page = pack(repository).with_suffix(".md")
    row = "<!--= ppo 20 base; slope of soft: Q; interval -->"
    page.write_text(f"−.100 [−.200, .000]{row}\n" + blocks("values: 20; base; auc: logp"))
    assert main([f"root={repository}", "write=true"]) == 0
    assert ".700 [.600, .800] |" in page.read_text()
    page.with_suffix("").joinpath("values.csv").write_text(head)
    with pytest.raises(RunError, match=r"values\.csv"):
        Results(page.with_suffix(""))


def test_changed_counts_and_claims_beyond_them_are_refused(repository, capsys):
    folder = pack(repository)
    (folder / "arms.json").write_text("[]")
    with pytest.raises(RunError, match=r"arms\.json"):
        Results(folder)
    study = repository / "s.yaml"
    study.write_text(STUDY.replace("metric: memory", "metric: edit_distance"))
    assert main([f"pack={repository / 'study-s'}", f"study={study}"]) == 2
    assert "edit_distance" in capsys.readouterr().err


def test_answer_and_leaderboard_read_the_runs_of_all_studies(repository, capsys):
    results = results_of(pack(repository))
    page = results.folder.with_name("answer.md")
    page.write_text(blocks("answer", "leaderboard"))
    page.with_suffix(".yaml").write_text("other: {}")
    assert main([f"root={repository}"]) == 2 and "no entry s" in capsys.readouterr().err
    page.with_suffix(".yaml").write_text("s: {spo-x_1.5: [ppo]}")
    results.config("ppo")["eval"]["split"] = "test"
    assert main([f"root={repository}", "write=true"]) == 0
    answer, _, board = page.read_text().partition("<!-- leaderboard -->")
    row = next(line for line in answer.splitlines() if line.startswith("| pass@1 "))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    gap = results.gap("spo-x_1.5", "ppo", "pass@1")
    seen, _ = results.tests[frozenset(SKILL), "pass@1"]
    start = ["[s](study-s.md) `spo-x_1.5`", "paper's", "nano", "base", "8", "20", "2", ".4"]
    assert cells == [*start, f"{gap} ({Cell(seen).text()})", "–", "–"] and r"\*" in gap
    assert "### mini, nano, 20 steps" in board and "`ppo`" in board and "spo-x" not in board
    assert page.with_suffix(".svg").read_text().count("<circle") == answer.count("[s](") > 1
    page.with_suffix(".svg").write_text("")
    assert main([f"root={repository}"]) == 1 and "answer.svg" in capsys.readouterr().out


def test_numbers_outside_quotes_tables_and_code_are_found():
    names = "in 2026, vLLM 0.32.0, arXiv 2503.05453, 8 B, .77 M, pass@10, SmolLM2-135M, v3"
    quotes = "−.1 [.4, .5]<!--= a - b; pass@1 -->, 1 to .2<!--= a; loss; range --><!-- 7 -->"
    others = "# 3\n| 4 | 5 |\n`6`\n```\n7\n```\n[x](8.md)\n1. a"
    found = loose_numbers(f"{names} {quotes}\n{others} .47 of 1,000 at 2e-4, −.1 [.0, 95] %")
    assert found == [".47", "1,000", "2e-4", ".1", ".0", "95"]


def test_numbers_are_written_in_one_way():
    wide, many = Cell(-0.0104, -0.2, 0.18), Cell(12345.6, digits=0)
    texts = [cell.text() for cell in (Cell(0.473), wide, Cell(-0.0001), many, Cell(float("nan")))]
    assert texts == [".473", "−.010 [−.200, .180]", ".000", "12,346", "–"]


@pytest.mark.slow
def test_the_pages_of_this_repository_are_right(capsys):
    assert main([f"root={ROOT}"]) == 0, capsys.readouterr().out


def test_one_page_of_this_repository_is_right(tmp_path, capsys):
    results_of.cache_clear()
    results = tmp_path / "docs" / "results"
    shutil.copytree(ROOT / results.relative_to(tmp_path) / STUDY_HERE, results / STUDY_HERE)
    shutil.copy(ROOT / "docs" / "results" / f"{STUDY_HERE}.md", results)
    (tmp_path / "README.md").write_text("")
    main([f"root={tmp_path}"])
    assert f"{STUDY_HERE}.md:" not in capsys.readouterr().out
