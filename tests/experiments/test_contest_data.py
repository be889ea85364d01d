"""A newer data set from its file to a trained run: prepared, selected from, trained on."""

import json

import pandas

from envs import prepare
from experiments.config.composition import compose
from experiments.config.schema import parse
from experiments.trainer import train
from tests.envs.tasks.contest_rows import codeforces
from tests.envs.tasks.dataset_rows import write


def test_codeforces_is_prepared_and_trained_on(tmp_path, capsys):
    rows = [codeforces(i, rating=800 + 100 * (i % 4)) for i in range(60)]
    rows += [codeforces(60, input_mode="file")]
    rows += [codeforces(i, generated_checker="print(0)") for i in range(61, 81)]
    chosen = [f"task.path={write(tmp_path / 'rows.jsonl', rows)}", "task.max_rating=1000"]
    assert prepare.main(["task=codeforces", *chosen]) == 0
    assert "licence: CC-BY-4.0" in capsys.readouterr().out
    given = "model=nano steps=2 eval.samples=1 eval.k=[1] train.prompts=2 train.group_size=2"
    more = "task.choose_problems=1 task.max_response_tokens=16 sandbox=embedded"
    overrides = ["task=codeforces", *chosen, *given.split(), *more.split()]
    outcome = train(parse(compose([*overrides, f"output_dir={tmp_path}/out"])))
    assert outcome.status == "finished"
    facts = json.loads((outcome.folder / "run.json").read_text())
    assert facts["task"]["rows_read"] == 81
    assert facts["checker_programs"]["train"]["python"] > 5
    assert facts["task"]["left_out"] == {
        "reads input.txt and writes output.txt": 1,
        "not of task.max_rating": 15,
    }
    assert len(pandas.read_parquet(outcome.folder / "metrics.parquet")) == 2
