"""A data set that somebody adds: one function in one module, one file in conf/task/."""

import importlib
import json
import shutil
import sys

import pandas
import pytest

from envs import prepare
from envs.tasks import open_task, task_cli
from experiments.config.composition import CONF, compose
from experiments.config.schema import parse
from experiments.trainer import train
from tests.envs.tasks.dataset_rows import statement

MODULE = """
from envs.problem import Problem, Test


def problem(row, name):
    test = Test(row["given"], row["wanted"])
    return Problem(name, row["text"], (), (test,), solutions=("print(4)",))
"""
TASK = """
defaults:
  - _shared/contest
  - _self_
name: fours
rows: {module}.problem
path: {path}
min_hidden_tests: 0  # each problem has one test
"""


@pytest.fixture
def fours(tmp_path, monkeypatch):
    """conf/ with the new file in it; the module on Python's path."""
    rows = [{"text": f"Print {i} - {i - 4}.", "given": "", "wanted": "4\n"} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "fours_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(CONF, tmp_path / "conf")
    text = TASK.format(module="fours_data", path=tmp_path / "rows.jsonl")
    (tmp_path / "conf" / "task" / "fours.yaml").write_text(text)
    monkeypatch.setattr(task_cli, "CONF", tmp_path / "conf")
    yield tmp_path
    sys.modules.pop("fours_data", None)


def test_it_is_prepared_trained_on_and_evaluated(fours, capsys):
    assert prepare.main(["task=fours"]) == 0
    assert "40 rows read" in capsys.readouterr().out
    given = "model=nano steps=1 eval.samples=2 eval.k=[1] train.prompts=2 train.group_size=2"
    more = "task.choose_problems=2 task.max_response_tokens=24 train.offline_share=0.5"
    overrides = ["task=fours", *given.split(), *more.split(), "sandbox=embedded"]
    composed = compose([*overrides, f"output_dir={fours}/out"], fours / "conf")
    outcome = train(parse(composed))
    folder = outcome.folder
    assert outcome.status == "finished" and folder.parent.name == "fours"
    evals = pandas.read_parquet(folder / "evals.parquet")
    assert sorted(evals["step"].unique()) == [0, 1] and len(evals) == 2 * 2 * 2
    assert evals["problem"].str.startswith("fours_data/").all()
    metrics = pandas.read_parquet(folder / "metrics.parquet")
    assert metrics["offline_share"].tolist() == [0.5]


def test_a_changed_function_is_used_although_the_rows_were_prepared(fours):
    """The second half is what another process would do; Python keeps a module that it knows."""
    config = task_cli.task_config(["task=fours"])
    assert {problem.tests[0].output for problem in open_task(config).train} == {"4\n"}
    changed = MODULE.replace('row["wanted"]', 'row["wanted"].replace("4", "four")')
    (fours / "fours_data.py").write_text(changed)
    del sys.modules["fours_data"]
    importlib.invalidate_caches()
    assert {problem.tests[0].output for problem in open_task(config).train} == {"four\n"}


def test_the_guides_two_examples_read_the_same_problems(tmp_path, monkeypatch):
    """docs/guide/data.md shows a mapping of columns and a loader."""
    page = (CONF.parent / "docs" / "guide" / "data.md").read_text("utf-8")
    _, _, section = page.partition("## Your own data")
    mapping, loader = (
        section.partition(f"```{language}\n")[2].partition("```")[0]
        for language in ("yaml", "python")
    )
    texts = [statement(i) for i in range(6)]
    nested = [
        {"uid": i, "text": text, "cases": [{"stdin": "1\n", "stdout": f"{1 + i}\n"}], "right": []}
        for i, text in enumerate(texts)
    ]
    flat = [
        {"uid": i, "text": text, "stdin": ["1\n"], "stdout": [f"{1 + i}\n"]}
        for i, text in enumerate(texts)
    ]
    for name, rows in {"mapped": nested, "loaded": flat}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "kata_loader.py").write_text(loader)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(task_cli, "CONF", tmp_path / "conf")
    mapping = mapping.replace("FILE_OR_FOLDER", f"{tmp_path}/mapped.jsonl")
    before, _, _ = mapping.partition("rows:")
    after = f"rows: kata_loader.problem\npath: {tmp_path}/loaded.jsonl\n"
    problems = {}
    for name, text in {"mapped": mapping, "loaded": before + after}.items():
        (tmp_path / "conf" / "task" / f"{name}.yaml").write_text(text)
        task = open_task(task_cli.task_config([f"task={name}", "++task.min_hidden_tests=0"]))
        entries = (problem for split in task.splits().values() for problem in split)
        problems[name] = {(p.name.partition("/")[2], p.statement, p.hash) for p in entries}
    assert problems["mapped"] == problems["loaded"] and len(problems["mapped"]) == 6
