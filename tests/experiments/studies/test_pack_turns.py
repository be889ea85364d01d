"""Conversations of a packed study: their tables from counts are those of the run folders."""

import json

import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.packed import TURNS, PackedStudy
from analysis.runs import load_run
from analysis.turns import TURN_TABLES, turn_tables
from experiments.errors import UserError
from experiments.studies.figures import signed
from experiments.studies.page_sections import turn_sections
from experiments.studies.results.packing import pack
from experiments.studies.results.results import Results
from experiments.studies.results.sentences import Numbers, share
from tests.analysis.conversations import add_conversations

STUDY = """
question: does feedback help
seeds: [0, 1]
overrides: [steps=20]
arms:
  single: {overrides: [algo=ppo]}
  turns: {overrides: [algo=spo, task.turns=3]}
claims: []
threats: [small]
"""


@pytest.fixture
def folder(tmp_path, make_run):
    """A study's folder: an arm of conversations and one of single samples."""
    (tmp_path / "s.yaml").write_text(STUDY)
    arms = []
    for algo, arm in (("ppo", "single"), ("spo", "turns")):
        for seed in (0, 1):
            path = make_run(tmp_path, algo, seed, problems=5, samples=8)
            if arm == "turns":
                add_conversations(path)
            one = {"arm": arm, "seed": seed, "trial": False, "status": "finished", "score": None}
            arms.append(one | {"run": f"compare/{path.name}", "overrides": []})
    (tmp_path / "compare" / "arms.json").write_text(json.dumps(arms))
    return tmp_path / "compare"


def tables_of(runs):
    experiment = build_experiment("s", runs)
    return turn_tables(experiment.models, experiment.groups, experiment.ks)


def test_tables_from_counts_are_those_of_the_run_folders(folder, tmp_path):
    sizes = pack(tmp_path / "s.yaml", folder, tmp_path / "packed")
    assert 0 < sizes[TURNS] < 20_000
    packed = tables_of(list(PackedStudy(tmp_path / "packed").runs.values()))
    whole = tables_of([load_run(path) for path in sorted(folder.glob("*-*"))])
    for name in TURN_TABLES:
        assert len(whole[name]) > 0
        pd.testing.assert_frame_equal(packed[name], whole[name])


def test_a_study_without_turns_has_no_such_file(folder, tmp_path):
    arms = [one for one in json.loads((folder / "arms.json").read_text()) if one["arm"] == "single"]
    (folder / "arms.json").write_text(json.dumps(arms))
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / TURNS).write_bytes(b"of an earlier pack")
    assert TURNS not in pack(tmp_path / "s.yaml", folder, tmp_path / "packed")
    assert not (tmp_path / "packed" / TURNS).exists()
    study = PackedStudy(tmp_path / "packed")
    assert all(run.turns is None for run in study.runs.values())
    assert all(not len(table) for table in tables_of(list(study.runs.values())).values())


def test_sentences_and_the_page_have_the_numbers_of_conversations(folder, tmp_path):
    pack(tmp_path / "s.yaml", folder, tmp_path / "packed")
    results = Results(tmp_path / "packed")
    table = tables_of([load_run(path) for path in sorted(folder.glob("*-*"))])["turns.csv"]
    chosen = (table["label"] == results.label["turns"]) & (table["metric"] == "mended")
    (row,) = table[chosen].to_dict("records")
    numbers = Numbers(results)
    assert numbers.text("turns.mended") == share(row["mean"])
    low, high = share(row["low"]), share(row["high"])
    assert numbers.text("turns.mended:interval") == f"{share(row['mean'])} [{low}, {high}]"
    with pytest.raises(UserError, match="single has no mended"):
        numbers.text("single.mended")
    mean, low, high = results.difference("turns", "single", "solved_in_1")
    assert numbers.text("turns-single.solved_in_1:unsigned").startswith(share(mean))
    shown, differences = turn_sections(["single", "turns"], [["turns", "single"]], results)
    assert f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" in shown
    assert "| turns − single |" in differences
    assert signed((mean, low, high)) in differences


def test_a_study_without_conversations_has_no_section_on_them(folder, tmp_path):
    arms = [one for one in json.loads((folder / "arms.json").read_text()) if one["arm"] == "single"]
    (folder / "arms.json").write_text(json.dumps(arms))
    pack(tmp_path / "s.yaml", folder, tmp_path / "packed")
    assert not list(turn_sections(["single"], [], Results(tmp_path / "packed")))
