"""A data set that somebody adds: one function in one module, one file in conf/task/."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from envs.command_line import CONF, composed, parse_values
from envs.tasks import open_task
from envs.tasks.task import TaskConfig
from tests.envs.tasks.dataset_rows import every_problem, statement, write

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "data.md"
MODULE = """
from envs.problem import Problem, Test


def problem(row, name):
    test = Test(row["given"], row["wanted"])
    return Problem(name, row["text"], (), (test,), solutions=("print(4)",))
"""
TASK = """
defaults:
  - _rows
  - _shared/contest
  - _self_
name: fours
rows: fours_data.problem
path: {path}
min_hidden_tests: 0  # each problem has one test
"""


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """A copy of conf/; modules beside it are on Python's path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(CONF, tmp_path / "conf")
    yield tmp_path / "conf"
    for name in ("fours_data", "kata_loader"):
        sys.modules.pop(name, None)


def opened(conf, name, *more):
    values = OmegaConf.to_container(composed([f"task={name}", *more], conf).task, resolve=True)
    return open_task(parse_values(TaskConfig, values, "task"))


def test_a_changed_function_is_used_although_the_rows_were_converted(conf):
    """The second half is what another process would do; Python keeps a module that it knows."""
    rows = [{"text": f"Print {i} - {i - 4}.", "given": "", "wanted": "4\n"} for i in range(40)]
    path = write(conf.parent / "rows.jsonl", rows)
    module = conf.parent / "fours_data.py"
    module.write_text(MODULE)
    (conf / "task" / "fours.yaml").write_text(TASK.format(path=path))
    task = opened(conf, "fours")
    assert {problem.tests[0].output for problem in task.train} == {"4\n"}
    assert all(problem.name.startswith("fours_data/") for problem in every_problem(task))
    module.write_text(MODULE.replace('row["wanted"]', 'row["wanted"].replace("4", "four")'))
    del sys.modules["fours_data"]
    importlib.invalidate_caches()
    assert {problem.tests[0].output for problem in opened(conf, "fours").train} == {"four\n"}


def test_the_guides_two_examples_read_the_same_problems(conf):
    """docs/guide/data.md shows a mapping of columns and a loader."""
    _, _, section = GUIDE.read_text("utf-8").partition("## Your own data")
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
        (conf.parent / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (conf.parent / "kata_loader.py").write_text(loader)
    mapping = mapping.replace("FILE_OR_FOLDER", f"{conf.parent}/mapped.jsonl")
    before, _, _ = mapping.partition("rows:")
    after = f"rows: kata_loader.problem\npath: {conf.parent}/loaded.jsonl\n"
    problems = {}
    for name, text in {"mapped": mapping, "loaded": before + after}.items():
        (conf / "task" / f"{name}.yaml").write_text(text)
        found = every_problem(opened(conf, name, "++task.min_hidden_tests=0"))
        problems[name] = {(p.name.partition("/")[2], p.statement, p.hash) for p in found}
    assert problems["mapped"] == problems["loaded"] and len(problems["mapped"]) == 6
