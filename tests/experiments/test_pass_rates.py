"""Pass rates of evaluations become a table by which a task keeps the problems that were solved."""

import csv
import json

import pytest

from envs.problem import Verdict
from envs.tasks import open_task
from envs.tasks.task import task_config
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


def call(runs, out, **bounds):
    pass_rates.main(pass_rates.Options(runs, out, **bounds))


def test_solved_problems_are_good_and_a_task_keeps_them(tmp_path, file, capsys):
    names = run_folder(tmp_path / "a", file, SOLVED)
    run_folder(tmp_path / "b", file, {0: (2, 4)})
    out = tmp_path / "rates.csv"
    call(f"{tmp_path}/a,{tmp_path}/b", out)
    assert capsys.readouterr().out == f"3 problems, 2 solved at least once, 2 good: {out}\n"
    rates = table(out)
    assert {n: (r["accepted"], r["samples"]) for n, r in rates.items()} == {
        names[0]: ("3", "8"),  # both runs, last evaluation, without the error
        names[1]: ("0", "4"),
        names[2]: ("4", "4"),
    }
    kept = open_task(task_config(["task=taco", f"task.path={file}", f"task.quality={out}"]))
    assert {problem.name for problem in kept.train} == {names[0], names[2]}


def test_bounds_decide_what_is_good(tmp_path, file):
    names = run_folder(tmp_path / "a", file, SOLVED)
    out = tmp_path / "rates.csv"
    call(f"{tmp_path}/a", out, high=0.5)
    assert [name for name, row in table(out).items() if row["good"] == "True"] == [names[0]]
