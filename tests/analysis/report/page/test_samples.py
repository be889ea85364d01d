import base64
import gzip
import json

import numpy as np
import pandas as pd
import pytest

from analysis import samples
from analysis.experiment import build_experiment
from analysis.runs import load_run
from analysis.samples import CELL, choose_samples, explorer_data, matrix_data, pack


def table(cells, size):
    """`cells` cells of `size` samples each, two seeds' in turn, at the last of two evaluations."""
    rows = [
        (cell % 3, step, f"p{cell // 3:03}", i % 2, i // 2)
        for cell in range(cells)
        for step in (10, 20)
        for i in range(size)
    ]
    return pd.DataFrame(rows, columns=[*CELL, "seed", "sample"])


def test_all_is_kept_where_it_is_little_and_a_stated_part_where_it_is_much():
    assert choose_samples(table(6, 20), 240)[1] == []
    assert choose_samples(table(6, 4), 240)[1] == []  # fewer of each than FEWEST, and all fit
    part, notes = choose_samples(table(6, 20), 200)
    assert set(part.groupby(CELL).size()) == {16}
    assert (part.groupby([*CELL, "seed"])["sample"].max() == 7).all()  # the first of either seed
    assert "16 samples are shown here" in notes[0]


def test_evaluations_on_the_way_go_before_problems_do():
    part, notes = choose_samples(table(6, 20), 100)
    assert set(part["step"]) == {20} and set(part.groupby(CELL).size()) == {16}
    assert notes[0].startswith("Only evaluations before training and at its end")
    part, notes = choose_samples(table(60, 20), 200)
    assert len(part) <= 210 and part["problem"].nunique() == 7
    assert "One problem in 3 (by name)" in notes[1]


@pytest.fixture
def experiment(tmp_path, make_run):
    paths = [make_run(tmp_path, "spo", seed, problems=5, samples=8, every=20) for seed in (0, 1)]
    return build_experiment("mini", [load_run(path) for path in paths])


def test_the_matrix_counts_every_sample_and_the_explorer_shows_each(experiment):
    shares, (data, notes) = matrix_data(experiment), explorer_data(experiment)
    assert notes == "" and shares["columns"] == ["base", "spo"]
    right = data["verdicts"].index("ACCEPTED")
    for place, problem in enumerate(data["problems"]):
        for column, step in ((0, 0), (1, 20)):
            rows = np.array(problem["cells"][f"{column}:{step}"])[:, 2:]
            assert rows.sum() == shares["judged"][column][place] == 16
            assert rows[:, right].sum() == shares["accepted"][column][place]
    written = {p for run in experiment.runs for p in run.evals["program"]}
    assert set(data["programs"]) <= written
    there = gzip.decompress(base64.b64decode(pack(data)))
    assert json.loads(there) == data


def test_programs_stand_beside_their_own_verdicts(experiment):
    data = explorer_data(experiment)[0]
    truth = {
        (problem, program): verdict
        for run in experiment.runs
        for problem, program, verdict in zip(
            *(run.evals[name] for name in ("problem", "program", "verdict")), strict=True
        )
    }
    for problem in data["problems"]:
        for cell in problem["cells"].values():
            for _, program, *counts in cell:
                verdict = truth[problem["name"], data["programs"][program]]
                assert counts[data["verdicts"].index(verdict)] == sum(counts)


def test_what_does_not_fit_is_cut_and_said(experiment, monkeypatch):
    monkeypatch.setattr(samples, "MOST_BYTES", 10)
    data, notes = explorer_data(experiment)
    assert "one problem in 16" in notes and len(data["problems"]) == 1
    assert "2 most frequent forms are shown" in notes
