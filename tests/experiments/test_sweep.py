"""Which run folder holds a configuration's run."""

import os
from dataclasses import asdict, replace

import pytest
from omegaconf import OmegaConf

from experiments.config.composition import config_of
from experiments.config.resolve_defaults import resolve_defaults
from experiments.sweep import find_run, later_runs_line, mixed_code_line, other_code_line


def test_a_run_is_found_again_whatever_was_said_of_its_tuning(tmp_path):
    config = config_of(["task=mini", "algo=spo", f"output_dir={tmp_path}", "model.device=cpu"])
    long = "24 trials (steps=40 eval.split=tune), 3 of the best on 3 fresh seeds, " * 3
    folder = tmp_path / config.name / "spo-s0-1"
    folder.mkdir(parents=True)
    recorded = OmegaConf.to_yaml(asdict(resolve_defaults(replace(config, tuned=long), "cpu")))
    (folder / "config.yaml").write_text(recorded)
    (folder / "run.json").write_text("{}")
    assert recorded.count("\n", recorded.index("\ntuned:")) > 1  # it has several lines
    assert find_run(replace(config, tuned=long)) == folder
    assert find_run(replace(config, tuned="otherwise")) == folder
    assert find_run(config) == folder
    assert find_run(replace(config, steps=config.steps + 1)) is None
    assert find_run(replace(config, seed=1)) is None
    (folder / "run.json").write_text("")  # damaged: it is no run
    assert find_run(config) is None


@pytest.fixture
def config(tmp_path):
    return config_of(["task=mini", "algo=grpo", f"output_dir={tmp_path}", "model.device=cpu"])


@pytest.fixture
def three_runs(config, tmp_path, monkeypatch):
    """Folders of one configuration, 1 the oldest; a dict of the numbers whose code has changed."""
    changed = dict[str, dict]()
    text = OmegaConf.to_yaml(asdict(resolve_defaults(config, "cpu")))
    for number in (3, 1, 2):
        folder = tmp_path / config.name / f"{number}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        (folder / "config.yaml").write_text(text)
        os.utime(folder / "config.yaml", (number, number))
    monkeypatch.setattr(
        "experiments.run_dir.provenance.changes", lambda at, _: changed.get(at.name, {})
    )
    return tmp_path / config.name, changed


@pytest.mark.parametrize(
    ("edited", "taken", "later"),
    [("", "3", ""), ("3", "2", "3"), ("23", "1", "32"), ("12", "3", ""), ("123", "3", "")],
)
def test_an_edit_that_was_taken_back_finds_the_runs_of_before_it(
    edited, taken, later, three_runs, config
):
    folder, changed = three_runs
    changed |= {name: {"code": ["algorithms/grpo.py"]} for name in edited}
    assert find_run(config) == folder / taken
    line = later_runs_line([(folder / taken, config)])
    if later:
        assert line.endswith(f"moved away: {', '.join(str(folder / name) for name in later)}")
    else:
        assert line is None


@pytest.mark.parametrize(
    ("found", "has_diff", "line"),
    [
        ({}, True, None),
        ({"data": ["x"], "model": ["y"]}, True, None),  # the command may name others
        (
            {"code": ["algorithms/grpo.py"], "packages": ["torch 1 → 2"], "data": ["x"]},
            True,
            "that run is of other code: algorithms/grpo.py; other packages: torch 1 → 2; "
            "git worktree add COPY abc and git -C COPY apply {}/code.diff copy its code",
        ),
        (
            {"unrecorded": []},
            False,
            "that run is of code that was not recorded; "
            "git worktree add COPY abc copies its commit; "
            "its uncommitted changes were not kept",
        ),
    ],
)
def test_a_run_from_another_says_whose_code_that_one_has(
    found, has_diff, line, config, tmp_path, monkeypatch
):
    monkeypatch.setattr("experiments.run_dir.provenance.changes", lambda *_: found)
    (tmp_path / "run.json").write_text('{"commit": "abc+"}')
    if has_diff:
        (tmp_path / "code.diff").touch()
    assert other_code_line(tmp_path, config) == (line and line.format(tmp_path))


def test_a_run_that_is_resumed_with_other_code_says_so(config, tmp_path, monkeypatch):
    found = {}
    monkeypatch.setattr("experiments.run_dir.provenance.changes", lambda *_: found)
    assert mixed_code_line(tmp_path, config) is None
    found["code"] = ["algorithms/grpo.py"]
    assert mixed_code_line(tmp_path, config) == (
        "this run's steps so far are of other code: algorithms/grpo.py; "
        f"from={tmp_path} begins it anew instead"
    )
