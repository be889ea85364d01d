"""Whole runs from the command line: on rows of a data set, and mistakes that only show later."""

import gc
import json
import resource
import shutil

import pandas
import pytest

from experiments import launch
from tests.command_line import ROOT, SMALL


def test_a_full_disk_is_one_line(tmp_path, call_here):
    """The weights of the bundled model are larger than this process may make a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        done = call_here(*SMALL, "algo=grpo", f"output_dir={tmp_path}/out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: the disk is full")
    (folder,) = (tmp_path / "out" / "mini").iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert len(pandas.read_parquet(folder / "evals.parquet")) == 2 * 2 * 2
    assert list((folder / "checkpoints").iterdir()) == []


def test_rows_of_a_public_data_set_go_the_whole_way(tmp_path, call_here):
    held = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]})
    program = json.dumps(["a, b = map(int, input().split())\nprint(a + b)"])
    names = [" ".join(f"{w}{i}" for w in ("please", "print", "the", "sum")) for i in range(40)]
    rows = [{"question": f"{name}.", "input_output": held} for name in names]
    rows = [row | {"solutions": program} for row in rows] + [{"question": "x", "input_output": ""}]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    small = "steps=2 eval.every=0 eval.samples=2 eval.k=[1] train.prompts=2 train.group_size=2"
    given = [*small.split(), "task.max_response_tokens=48", "train.offline_share=0.5"]
    given += [
        "model=nano",
        "sandbox=embedded",
        f"output_dir={tmp_path}/out",
        "task.choose_problems=2",
        "task.test_problems=2",
    ]
    done = call_here("algo=spo", "task=taco", f"task.path={file}", *given)
    assert done.returncode == 0, done.stderr
    assert "of 41 rows; left out: input_output is empty 1" in done.stderr
    (folder,) = (tmp_path / "out" / "taco").iterdir()
    facts = json.loads((folder / "run.json").read_text())
    assert facts["task"] == {
        "rows_read": 41,
        "left_out": {"input_output is empty": 1},
        "first_left_out": {"input_output is empty": f"line 41 of {file}"},
        "decontaminated": [],
    }
    assert facts["cheap_programs"]["train"]["earned_by_any"] == 0
    assert facts["cheap_programs"]["train"]["compared"] == facts["train_problems"]
    command = f"python -m envs.validate task=taco task.path={file} task.max_tests=40"
    assert facts["judge_errors"]["command"].startswith(command)
    metrics = pandas.read_parquet(folder / "metrics.parquet")
    assert list(metrics["offline_share"]) == [0.5, 0.5]


LATER = {
    "no network": (
        ["task=taco", "model=nano"],
        ["task.path=hf://datasets/BAAI/TACO@", "cannot be reached", "hf download", "=FOLDER"],
    ),
    "no such model": (
        ["model.path=/nowhere/model"],
        ["model.path=/nowhere/model", "no such folder"],
    ),
    "no model in the folder": (["model.path={tmp}"], ["model.path", "config.json"]),
    "empty split": (["task.max_prompt_tokens=2"], ["split is empty", "task.max_prompt_tokens=2"]),
    "unwritable": (
        ["output_dir=/proc/nowhere"],
        ["output_dir=/proc/nowhere", "choose a writable folder"],
    ),
    "no problems": (["task.choose_problems=0"], ["task.choose_problems=0"]),
}


@pytest.mark.parametrize("mistake", LATER)
def test_what_only_shows_later_is_one_line_too(mistake, tmp_path, call_here):
    arguments, words = LATER[mistake]
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    small = (
        "task.train_problems=12",
        "task.choose_problems=4",
        "task.test_problems=4",
        "sandbox=embedded",
    )
    done = call_here(*small, f"output_dir={tmp_path}/out", *given)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().split("\n")[-1]
    assert last.startswith("error: ")
    assert all(word in last for word in words), last


def test_a_model_without_chat_template_is_said(tmp_path, call_here):
    shutil.copytree(ROOT / "assets" / "nano", tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    settings = tmp_path / "plain" / "tokenizer_config.json"
    kept = {k: v for k, v in json.loads(settings.read_text()).items() if k != "chat_template"}
    settings.write_text(json.dumps(kept))
    done = call_here(*SMALL, f"model.path={tmp_path}/plain", f"output_dir={tmp_path}/out")
    assert done.returncode == 2
    assert "no chat template" in done.stderr.strip().split("\n")[-1]
    assert "task.chat=false" in done.stderr


def test_what_imports_left_is_not_collected_and_what_runs_leave_is(monkeypatch):
    """The first run of a process sets the imports aside, a later one not what a run has left."""
    found = []
    gc.collect()
    monkeypatch.setattr(
        "experiments.launch.train",
        lambda *_: found.append((gc.isenabled(), gc.get_freeze_count())),
    )
    gc.disable()
    try:
        launch.run_one(None)
        launch.run_one(None)
    finally:
        gc.enable()
    (enabled, frozen), again = found
    assert enabled and frozen > 10_000 and again[0] and again[1] <= frozen
