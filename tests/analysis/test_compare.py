import pandas as pd
import pytest

from analysis.compare import main
from analysis.report import main as report

SMALL = {"problems": 12, "samples": 10, "every": 20}


@pytest.fixture
def runs(tmp_path, make_run):
    for algo in ("ppo", "spo"):
        for seed in range(2):
            make_run(tmp_path / "outputs", algo, seed, **SMALL)
    return tmp_path / "outputs" / "compare"


def test_two_globs_give_the_numbers_of_a_report_of_these_two_groups(runs, tmp_path, capsys):
    assert main([f"a={runs}/spo-*", f"b={runs}/ppo-*"]) == 0
    printed = capsys.readouterr().out
    assert report([f"runs={runs}", f"out={tmp_path}/report"]) == 0
    table = pd.read_csv(tmp_path / "report" / "differences.csv")
    for metric in ("pass@1", "pass@10"):
        (row,) = table[(table["a"] == "spo") & (table["metric"] == metric)].to_dict("records")
        ends = f"{row['difference']:+.3f}"
        if row["high"] > row["low"]:
            ends += f" [{row['low']:+.3f}, {row['high']:+.3f}]"
        assert ends.replace("-", "−") in printed
    assert "detecting 0.05 takes" in printed
    assert "Fewer than 5 seeds" in printed
    plain = " ".join(printed.split())
    assert "The spread over seeds is estimated from these two groups alone." in plain
    assert "study=FOLDER a=ARM b=ARM" in plain


def test_a_margin_makes_an_answer_for_each_pass_at_k(runs, capsys):
    assert main([f"a={runs}/spo-*", f"b={runs}/ppo-*", "margin=0.9"]) == 0
    printed = capsys.readouterr().out
    for metric in ("pass@1", "pass@10"):
        (line,) = [
            line
            for line in printed.splitlines()
            if line.startswith(f"{metric}: ") and "(diff" in line
        ]
        assert "equal within 0.9 (different: p " in line or "a is " in line
    assert main([f"a={runs}/spo-*", f"b={runs}/ppo-*", "margin=0.001"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "not decided within 0.001, " in printed


def test_groups_that_solve_the_same_have_no_noise_to_detect_a_difference_from(runs, capsys):
    assert main([f"a={runs}/spo-*", f"b={runs}/spo-*"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "pass@10: a and b differ by the same everywhere" in printed
    assert printed.count("detecting 0.05") == 1  # of pass@1


def test_a_failed_run_without_an_evaluation_is_left_out(tmp_path, make_run, capsys):
    for algo in ("spo", "ppo"):
        make_run(tmp_path / algo, algo, 0, problems=4, samples=4)
    config = {"model.name": "nochat"}
    failed = make_run(
        tmp_path / "x", "ppo", 7, problems=4, samples=4, status="failed", config=config
    )
    (failed / "evals.parquet").unlink()
    assert main([f"a={tmp_path}/spo", f"b={tmp_path}/ppo,{tmp_path}/x"]) == 0
    capsys.readouterr()
    assert main([f"a={tmp_path}/spo", f"b={tmp_path}/x"]) == 1
    assert "a and b need an evaluation after training" in capsys.readouterr().err


def test_groups_without_a_common_problem_or_seed_are_one_line(tmp_path, make_run, capsys):
    make_run(tmp_path / "a", "spo", 0, problems=4, samples=4)
    renamed = make_run(tmp_path / "b", "ppo", 0, problems=4, samples=4)
    make_run(tmp_path / "c", "ppo", 1, problems=4, samples=4)
    evals = pd.read_parquet(renamed / "evals.parquet")
    evals["problem"] = evals["problem"].str.replace("test", "choose")
    evals.to_parquet(renamed / "evals.parquet")
    for other in ("b", "c"):
        assert main([f"a={tmp_path}/a", f"b={tmp_path}/{other}"]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert printed.err.startswith("error: a and b have no problem with the same seed in common")


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["a={runs}/spo-*"], 2, "b=... is missing"),
        (["a={runs}", "b={runs}/ppo-*"], 1, "2 groups (ppo and spo)"),
        (["a={runs}/spo-*", "b={runs}/sft-*"], 1, "no such folder"),
        (["a=x", "b=y", "margin=2"], 2, "margin="),
        (["a=x", "b=y", "margin=nan"], 2, "margin="),
        (["a=x", "b=y", "margin=0"], 2, "margin="),
        (["c=1"], 2, "c=1"),
    ],
)
def test_bad_input_is_one_line(runs, capsys, arguments, code, fault):
    assert main([argument.format(runs=runs) for argument in arguments]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert fault in error
