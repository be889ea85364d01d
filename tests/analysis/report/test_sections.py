"""A report's experiments, each by itself: in one process or in several the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from analysis import report as module
from analysis.report import build_sections, slugs
from analysis.runs import RunError


def three_runs(folder, make_run):
    return [
        make_run(folder / "c", "spo", 0, config={"name": "stale", "train.sync_every": 16}),
        make_run(folder / "b", "spo", 0, config={"name": "stale", "train.sync_every": 4}),
        make_run(folder / "a", "spo", 0, config={"name": "online"}),
    ]


@pytest.fixture
def paths(tmp_path, make_run):
    return three_runs(tmp_path, make_run)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make_run):
    """The folders of three whole runs, and what is built of them in this process."""
    paths = three_runs(tmp_path_factory.mktemp("whole"), make_run)
    return paths, build_sections(paths, False)


def test_experiments_are_parts_with_labels_of_their_own(whole):
    _, (built, skipped) = whole
    assert [section.name for section in built] == ["online", "stale"]
    assert skipped == []
    assert list(built[0].results["label"]) == ["base", "spo"]
    assert list(built[1].results["label"]) == ["base", "spo sync_every=4", "spo sync_every=16"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one core: one process")
def test_in_several_processes_they_are_the_same(whole, monkeypatch):
    paths, (alone, _) = whole
    monkeypatch.setattr(module, "MIN_PARALLEL", 1)
    together, _ = build_sections(paths, False)
    for one, other in zip(alone, together, strict=True):
        for name, table in one.tables.items():
            pd.testing.assert_frame_equal(table, other.tables[name], check_exact=True)
        for field in ("headlines", "notes", "ks", "slug"):
            assert getattr(one, field) == getattr(other, field)
        assert one.context["packed"] == other.context["packed"]


@pytest.mark.parametrize("many", [1, 100])
def test_a_damaged_run_is_an_error_or_left_out_and_an_experiment_may_go_whole(
    many, paths, monkeypatch
):
    monkeypatch.setattr(module, "MIN_PARALLEL", many)
    (paths[2] / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        build_sections(paths, False)
    built, skipped = build_sections(paths, True)
    assert [section.name for section in built] == ["stale"]
    assert len(skipped) == 1 and skipped[0].startswith("Damaged and left out: ")


def test_slugs_are_safe_and_no_two_alike():
    assert slugs(["a b", "a/b", "…"]) == ["a-b", "a-b-1", "runs"]


SEVERAL = """\
import sys
from analysis import report as command, report as sections
sections.MIN_PARALLEL = 1
if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
"""


def members(group):
    """How many processes the group has."""
    stats = Path("/proc").glob("[0-9]*/stat")
    return sum(_read(stat).rpartition(")")[2].split()[2:3] == [str(group)] for stat in stats)


def _read(path):
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one core: one process")
def test_ctrl_c_ends_all_of_them_at_once_and_in_a_line(paths, tmp_path):
    (tmp_path / "several.py").write_text(SEVERAL)
    child = subprocess.Popen(
        [sys.executable, tmp_path / "several.py", f"runs={tmp_path}", f"out={tmp_path / 'report'}"],
        env={**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while members(child.pid) < 4:  # it, two that serve it, and one that works
        assert child.poll() is None
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    assert (child.returncode, output) == (130, "interrupted; run the same command to start again\n")
    deadline = time.monotonic() + 20
    while members(child.pid):  # what served it ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.01)
