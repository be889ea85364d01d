"""Recorded runs foretold from their parts, the order of published speed-ups, and the page."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.benchmarks import published, scaling
from experiments.benchmarks.pipeline import simulate
from experiments.errors import UserError

SECONDS = {"generate": 2.0, "judge": 1.0, "reference": 0.5, "train": 3.0, "sync": 0.25}
REST = 0.1  # of a step, in none of the parts


def a_run(folder, steps=20, **runtime):
    """A run whose every step took the same."""
    whole = sum(SECONDS.values()) + REST
    rows = []
    for step in range(1, steps + 1):
        parts = {f"time/{name}_s": seconds * step for name, seconds in SECONDS.items()}
        evaluated = 50.0 if step >= 5 else 0.0
        total = {"time/evaluate_s": evaluated, "time/total_s": whole * step + evaluated}
        waited = {"time/waited_judge_s": 0.2 * step} if runtime else {}
        rows.append({"step": step, **parts, **total, **waited})
    folder.mkdir()
    pd.DataFrame(rows).to_parquet(folder / "metrics.parquet")
    config = {"train": {"prompts": 4}, "runtime": {"name": "sync", **runtime}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def body(table):
    return [" ".join(line.split()) for line in table.splitlines()[2:]]


def test_a_run_in_turn_takes_the_sum_of_its_parts(tmp_path):
    run = scaling.read(a_run(tmp_path / "run"))
    assert run.total == pytest.approx([sum(SECONDS.values()) + REST] * 19)  # evaluation left out
    course = simulate(scaling.loop_of(run, slice(None)), 20)
    assert course.step_s == pytest.approx(sum(SECONDS.values()))
    (line,) = body(scaling.of_runs([tmp_path / "run"]))
    assert line.startswith("| run | 6.85 | 6.75 | -1 % | 6.75 | -1 % |")


def test_the_wait_for_a_judge_beside_the_engine_is_foretold(tmp_path):
    lines = body(scaling.of_runs([a_run(tmp_path / "run", overlap=True)]))
    assert lines[0].startswith("| run, overlap | 6.85 | ")
    # Of four pieces, a quarter of a second each, one is judged when the engine is done.
    assert "| … its wait for the judge | 0.20 | | | 0.25 | +0.05 s | | |" in lines


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere: no run folder with metrics\.parquet"):
        scaling.read(tmp_path / "nowhere")
    with pytest.raises(UserError, match="short: 3 steps; give a run of 4"):
        scaling.read(a_run(tmp_path / "short", steps=3))


def test_the_order_of_the_published_speed_ups_comes_out():
    ways = published.ladder(0.45).values()
    turn, one, ten, free = (simulate(loop, scaling.BATCHES).step_s for loop in ways)
    assert turn > 1.2 * one and one > 1.1 * ten and ten > 1.1 * free


def test_the_fit_reproduces_the_step_that_it_was_fitted_to():
    model = published.step_s(published.colocated(0.45, 128))
    assert model == pytest.approx(published.COLOCATED[128].step, rel=0.02)
    model = published.step_s(published.streamed(0.45, published.STALENESS[0.0], 0.0))
    assert model == pytest.approx(published.STALENESS[0.0].step, rel=0.05)


def test_only_what_stands_between_the_markers_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- order -->\nold\n<!-- end of order -->\nafter\n")
    for _ in range(2):
        scaling.put(page, "order", "| a |\n| b |")
    found = page.read_text()
    assert found == "before\n<!-- order -->\n| a |\n| b |\n<!-- end of order -->\nafter\n"
    with pytest.raises(UserError, match="no markers <!-- runs -->"):
        scaling.put(page, "runs", "")


def test_the_page_of_the_repository_has_the_markers_and_the_figure():
    page = Path(__file__).resolve().parents[3] / scaling.PAGE
    text = page.read_text()
    for name in ("order", "published", "runs"):
        assert f"<!-- {name} -->\n| " in text or f"<!-- {name} -->\nOn " in text
    assert f"({page.stem}.svg)" in text and page.with_suffix(".svg").is_file()
