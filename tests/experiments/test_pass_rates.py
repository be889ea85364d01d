"""Pass rates of evaluations become a table by which a task keeps the problems that were solved."""

import csv
import json

import pytest

from envs.problem import Verdict
from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments import pass_rates
from experiments.config.composition import compose
from tests.envs.tasks.dataset_rows import taco_row, write

SOLVED = {0: (1, 4), 1: (0, 4), 2: (4, 4)}  # problem → accepted, samples


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "rows.jsonl", [taco_row(i) for i in range(30)])


def run_folder(folder, file, counts, split="train"):
    """What an evaluation leaves of a run, with so many accepted responses to the first problems."""
    import pandas as pd
    from omegaconf import OmegaConf

    folder.mkdir()
    given = ["task=taco", f"task.path={file}", f"eval.split={split}", "steps=0", "model=nano"]
    OmegaConf.save(compose(given), folder / "config.yaml", resolve=True)
    (folder / "run.json").write_text(json.dumps({"status": "finished"}))
    problems = getattr(open_task(task_config(given[:2])), split)
    rows = [
        (step, problems[number].name, Verdict.ACCEPTED if i < accepted else Verdict.WRONG_ANSWER)
        for step in (0, 5)
        for number, (accepted, samples) in counts.items()
        for i in range(samples if step else 1)
    ]
    rows.append((5, problems[0].name, Verdict.INFRA_ERROR))
    pd.DataFrame(rows, columns=["step", "problem", "verdict"]).to_parquet(folder / "evals.parquet")
    return [problem.name for problem in problems]


def table(out):
    return {row["name"]: row for row in csv.DictReader(out.open())}


def call(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["pass_rates", *arguments])
    pass_rates.main()


def test_solved_problems_are_good_and_a_task_keeps_them(tmp_path, file, monkeypatch, capsys):
    names = run_folder(tmp_path / "a", file, SOLVED)
    run_folder(tmp_path / "b", file, {0: (2, 4)})
    out = tmp_path / "rates.csv"
    call(monkeypatch, f"runs={tmp_path}/a,{tmp_path}/b", f"out={out}")
    assert capsys.readouterr().out == f"3 problems, 2 solved at least once, 2 good: {out}\n"
    rates = table(out)
    assert {n: (r["accepted"], r["samples"]) for n, r in rates.items()} == {
        names[0]: ("3", "8"),  # both runs, last evaluation, without the error
        names[1]: ("0", "4"),
        names[2]: ("4", "4"),
    }
    kept = open_task(task_config(["task=taco", f"task.path={file}", f"task.quality={out}"]))
    assert {problem.name for problem in kept.train} == {names[0], names[2]}


def test_bounds_decide_what_is_good(tmp_path, file, monkeypatch):
    names = run_folder(tmp_path / "a", file, SOLVED)
    out = tmp_path / "rates.csv"
    call(monkeypatch, f"runs={tmp_path}/a", f"out={out}", "low=0", "high=0.5")
    assert [name for name, row in table(out).items() if row["good"] == "true"] == [names[0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runs=/nowhere out=x.csv", "runs=/nowhere: no run folder with an evaluation"),
        ("runs=/nowhere out=x.txt", "out=x.txt: it must end in .csv"),
        ("runs=/nowhere out=x.csv high=2", "high='2'; it must be at most 1"),
        ("out=x.csv", "runs=... is missing"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *arguments.split())
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith(f"error: {message}") and told.count("\n") == 1


def test_a_run_of_other_problems_is_refused(tmp_path, file, monkeypatch, capsys):
    run_folder(tmp_path / "a", file, SOLVED)
    write(tmp_path / "rows.jsonl", [taco_row(i) for i in range(50, 60)])
    with pytest.raises(SystemExit):
        call(monkeypatch, f"runs={tmp_path}/a", f"out={tmp_path}/rates.csv")
    assert "is not in task=taco now; evaluate the model again" in capsys.readouterr().err
