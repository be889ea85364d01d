"""A split that has nothing left is an error in a line that counts what was left out."""

import pytest

from experiments.trainer import train
from tests.envs.tasks.dataset_rows import taco_row, write
from tests.experiments.compose import config


def failed(output_dir, *overrides):
    given = ("model=nano", "sandbox=embedded", f"output_dir={output_dir}", *overrides)
    outcome = train(config(*given))
    assert (outcome.status, outcome.expected) == ("failed", True)
    return outcome.error


@pytest.mark.parametrize("given", [(), ("steps=0", "eval.split=train")])
def test_prompts_that_are_all_too_long(tmp_path, given):
    sizes = [f"task.{split}_problems=2" for split in ("train", "tune", "choose", "test")]
    said = failed(tmp_path, "task.max_prompt_tokens=9", *sizes, *given)
    assert "the train split is empty: all of its prompts are over task.max_prompt_tokens=9" in said
    assert 9 < int(said.split("the shortest has ")[1].split()[0]) < 256


def test_a_split_without_problems_counts_those_of_the_others_and_what_was_left_out(tmp_path):
    rows = [taco_row(i) for i in range(6)]
    paths = [write(tmp_path / f"{name}.jsonl", rows) for name in ("train", "test")]
    both = (f"task.path={paths[0]}", f"task.test_path={paths[1]}")
    said = failed(tmp_path / "out", "task=taco", *both)
    assert "the train split is empty (problems by split: train 0, " in said and "test 6)" in said
    assert "left out: " in said and " 6" in said.split("left out: ")[1]
    broken = [taco_row(i, input_output="") for i in range(3)]
    path = write(tmp_path / "broken.jsonl", broken)
    said = failed(tmp_path / "out", "task=taco", f"task.path={path}")
    assert "left out: input_output is empty 3" in said
