"""Run folders and packed studies, whole and damaged."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.groups import group_runs
from analysis.metrics import is_counted, scores
from analysis.programs import normal_form
from analysis.runs import (
    COUNT_COLUMNS,
    UNPARSABLE,
    Contrast,
    RunError,
    contrasts_of,
    count_samples,
    find_runs,
    load_run,
    stand_in_samples,
)


def test_a_whole_run_is_read(tmp_path, make_run):
    run = load_run(make_run(tmp_path, "grpo", 3))
    assert (run.algo, run.seed, run.status) == ("grpo", 3, "finished")
    assert run.evaluated_steps == [0, 10, 20]
    assert len(run.evaluation(0)) == 12 * 20


def test_runs_are_found_at_any_depth_by_folder_and_by_pattern(tmp_path, make_run):
    paths = [make_run(tmp_path, algo, seed) for algo in ("grpo", "spo") for seed in (0, 1)]
    (paths[0] / "checkpoints" / "step-20").mkdir(parents=True)
    (paths[0] / "checkpoints" / "step-20" / "config.yaml").write_text("a: 1")
    assert find_runs([tmp_path]) == sorted(paths)
    assert find_runs([tmp_path, tmp_path / "compare" / "spo-*"]) == sorted(paths)
    assert find_runs([f"{tmp_path}/*/spo-*"]) == sorted(paths[2:])


def test_evaluations_in_a_part_each_are_one_table(tmp_path, make_run):
    path = make_run(tmp_path)
    whole = load_run(path).evals
    (path / "evals.parquet").unlink()
    (path / "evals.parquet").mkdir()
    (path / "evals.parquet" / ".step-30.parquet").write_bytes(b"being written")
    for step, part in whole.groupby("step"):
        part.to_parquet(path / "evals.parquet" / f"step-{step:08}.parquet", index=False)
    pd.testing.assert_frame_equal(load_run(path).evals, whole)


def test_further_temperatures_stand_apart_from_the_main_evaluation(tmp_path, make_run, add_further):
    path = make_run(tmp_path)
    plain = load_run(path)
    assert plain.further_evaluations(0) == {}
    for temperature, steps in ((1.0, (20, 0)), (0.0, (20,))):
        evals = plain.evals[plain.evals["step"].isin(steps)]
        add_further(path, temperature, evals.sort_values("step", ascending=False))
    run = load_run(path)
    pd.testing.assert_frame_equal(run.evals, plain.evals)
    steps = {t: list(e["step"].unique()) for t, e in run.further_evals.items()}
    assert steps == {0.0: [20], 1.0: [0, 20]}
    assert list(run.further_evaluations(0)) == [1.0] and run.further_evaluations(10) == {}
    assert set(run.further_evaluations(20)[1.0]["step"]) == {20}


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_run_that_has_not_ended_well_is_readable_without_its_tables(tmp_path, make_run, status):
    path = make_run(tmp_path, status=status)
    (path / "evals.parquet").unlink()
    (path / "metrics.parquet").unlink()
    run = load_run(path)
    assert run.status == status
    assert run.evaluated_steps == []


def truncate(name):
    def damage(path):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: len(content) // 2])

    return damage


def remove(name):
    return lambda path: (path / name).unlink()


def drop_column(name, column):
    def damage(path):
        table = pd.read_parquet(path / name)
        table.drop(columns=column).to_parquet(path / name)

    return damage


def double_rows(path):
    table = pd.read_parquet(path / "evals.parquet")
    pd.concat([table, table.head(1)]).to_parquet(path / "evals.parquet")


def set_status(path):
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(record | {"status": "fine"}))


def further(*changes):
    """Add an evaluation at temperature 1, changed."""

    def damage(path):
        evals = pd.read_parquet(path / "evals.parquet").assign(temperature=1.0)
        for change in changes:
            evals = change(evals)
        evals.to_parquet(path / "further_evals.parquet")

    return damage


def set_further(path):
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("eval:", "eval:\n  further_temperatures: [1.0]"))


DAMAGE = {
    "no further evals though finished": (set_further, "finished but further_evals.parquet is miss"),
    "further rows twice": (
        further(lambda evals: pd.concat([evals, evals.head(1)])),
        "further_evals.parquet holds the same temperature, step, problem, sample twice",
    ),
    "no temperatures": (
        further(lambda evals: evals.drop(columns="temperature")),
        "further_evals.parquet lacks the columns temperature",
    ),
    "no run.json": (remove("run.json"), "run.json cannot be read"),
    "no config": (remove("config.yaml"), "config.yaml cannot be read"),
    "half a run.json": (truncate("run.json"), "run.json cannot be read"),
    "half a metrics.parquet": (truncate("metrics.parquet"), "metrics.parquet cannot be read"),
    "half an evals.parquet": (truncate("evals.parquet"), "evals.parquet cannot be read"),
    "no evals though finished": (remove("evals.parquet"), "finished but evals.parquet is missing"),
    "no verdicts": (drop_column("evals.parquet", "verdict"), "lacks the columns verdict"),
    "no rewards": (drop_column("metrics.parquet", "reward_mean"), "lacks the columns reward_mean"),
    "rows twice": (double_rows, "twice"),
    "unknown status": (set_status, "status 'fine'"),
    "config is no mapping": (lambda p: (p / "config.yaml").write_text("- 1"), "not a mapping"),
    "config is no YAML": (lambda p: (p / "config.yaml").write_text("a: [1"), "cannot be read"),
}


@pytest.mark.parametrize(("damage", "fault"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_in_one_line_with_the_folder_and_a_way_out(
    tmp_path, make_run, damage, fault
):
    path = make_run(tmp_path)
    damage(path)
    with pytest.raises(RunError) as caught:
        load_run(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert fault in message and "skip_damaged=true" in message


def test_nothing_found_is_an_error(tmp_path):
    with pytest.raises(RunError, match="no run folder in there"):
        find_runs([tmp_path])
    with pytest.raises(RunError, match="no such folder"):
        find_runs([tmp_path / "absent"])


@pytest.fixture
def study(tmp_path, make_run):
    """Two arms of two seeds, as a study leaves them, and its arms.json."""
    entries, runs = [], []
    for arm, beta in (("mild", 0.1), ("strict", 0.5)):
        for seed in (0, 1):
            path = make_run(tmp_path / f"{arm}{seed}", "spo", seed, config={"algo.beta": beta})
            runs.append(path.rename(tmp_path / f"{arm}-{path.name}"))
            entries.append({"arm": arm, "seed": seed, "run": str(runs[-1])})
    (tmp_path / "arms.json").write_text(json.dumps([*entries, {"arm": "mild", "run": None}]))
    return runs


def test_arms_are_the_labels_and_the_pairs_that_a_study_named_are_read_in_order(study):
    runs = [load_run(path) for path in study]
    assert [group.label for group in group_runs(runs)] == ["mild", "strict"]
    named = [
        {"a": "mild", "b": "strict", "metric": None, "margin": None},
        {"a": "strict", "b": "mild", "metric": "pass@10", "margin": 0.05},
    ]
    (study[0].parent / "contrasts.json").write_text(json.dumps(named))
    assert contrasts_of(runs) == [
        Contrast("mild", "strict"),
        Contrast("strict", "mild", "pass@10", 0.05),
    ]


# Samples that stand for counts have the same scores as the samples that were counted.


@pytest.fixture
def evals(tmp_path, make_run):
    """Evaluations with right programs that cannot be parsed, and judge failures."""
    evals = load_run(make_run(tmp_path, skill=8.0)).evals.reset_index(drop=True)
    accepted = np.flatnonzero(evals["verdict"] == "ACCEPTED")
    evals.loc[accepted[::7], "program"] = "print 1"
    evals.loc[accepted[3::11], "verdict"] = "INFRA_ERROR"
    return evals


def test_counts_give_the_same_scores_to_the_last_bit(evals):
    counts = count_samples(evals)
    assert tuple(counts) == COUNT_COLUMNS
    stand_in = stand_in_samples(counts)
    for step in (0, 10, 20):
        found = (scores(table[table["step"] == step]) for table in (stand_in, evals))
        mine, right = ({n: s for n, s in each.items() if is_counted(n)} for each in found)
        assert {"pass@1", "pass@10", "distinct_accepted@10"} <= set(right) == set(mine)
        for name, score in right.items():
            assert mine[name].problems.tolist() == score.problems.tolist()
            assert mine[name].values.tolist() == score.values.tolist(), name
            assert mine[name].weights.tolist() == score.weights.tolist()
    assert "distinct_of_5" in right


def test_stand_ins_have_the_counts(evals):
    counts = count_samples(evals)
    again = count_samples(stand_in_samples(counts).assign(tokens=0))
    pd.testing.assert_frame_equal(again.drop(columns="tokens"), counts.drop(columns="tokens"))
    assert counts["samples"].sum() == len(evals)
    assert counts["judged"].sum() == (evals["verdict"] != "INFRA_ERROR").sum()
    judged = evals[evals["verdict"] != "INFRA_ERROR"]
    assert counts["tokens"].sum() == judged["tokens"].sum()


def test_constants_differ_in_their_normal_forms():
    assert len({normal_form(str(number)) for number in range(200)}) == 200
    assert normal_form(UNPARSABLE) is None


@pytest.mark.parametrize(
    ("samples", "judged", "accepted", "forms"),
    [(2, 3, 1, "1"), (3, 2, 3, "1"), (3, 3, 1, "1 1"), (3, 3, 3, "3 0"), (3, 3, -1, "")],
)
def test_impossible_counts_are_refused(samples, judged, accepted, forms):
    row = [0, "p", samples, judged, accepted, forms, 0]
    with pytest.raises(ValueError, match=f"{accepted} accepted"):
        stand_in_samples(pd.DataFrame([row], columns=list(COUNT_COLUMNS)))


@pytest.mark.parametrize(
    ("metric", "known"),
    [("pass@10 (T=1)", True), ("distinct_of_5", True), ("edit_distance", False), ("time", False)],
)
def test_metrics_of_counts(metric, known):
    assert is_counted(metric) == known
