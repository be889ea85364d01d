"""The page's clustering, map and tables from made-up numbers; the whole command is slow."""

import csv

import numpy as np
import pytest

from experiments.anatomy.__main__ import act
from experiments.anatomy.options import Options
from experiments.anatomy.page import write
from experiments.anatomy.similarity import classes, scaled
from tests.experiments.anatomy.made_up import anatomy

NAMES = ["a", "b", "c", "d"]
ANGLES = np.array([0.0, 0.01, 1.5, 3.0])
COSINES = np.cos(ANGLES[:, None] - ANGLES)


def test_classes_are_of_pairs_that_are_all_near():
    assert classes(COSINES, NAMES, 0.999) == [["a", "b"]]
    assert classes(COSINES, NAMES, 0.99999) == []
    assert classes(np.where(COSINES > 0.99, COSINES, np.nan), NAMES, 0.999) == [["a", "b"]]


def test_the_map_keeps_distances_of_vectors_in_a_plane():
    places = scaled(COSINES)
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    np.testing.assert_allclose(distances, np.sqrt(np.maximum(0, 2 - 2 * COSINES)), atol=1e-6)


def test_the_sentences_are_those_of_the_numbers(tmp_path):
    write(anatomy(), Options(out=str(tmp_path / "page.md")))
    text = (tmp_path / "page.md").read_text()
    assert (
        "spo 0.9998, 0.9998, 0.9998" in text
        and "both have a gradient): {rloo, spo squared β=0.1}" in text
    )
    assert "base, fresh: less than 0.01 of the weight is on failures for raft, spo;" in text
    assert "Refused when stale, and blank there: rloo." in text
    assert "- base, stale: {raft, spo}\n" in text
    with (tmp_path / "page.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 and float(rows[0]["cos spo"]) == pytest.approx(0.9998, abs=1e-5)
    assert (tmp_path / "page.svg").exists()


@pytest.mark.slow
def test_the_whole_command(tmp_path):
    small = ["half=1", "collapsed=2", "lag=1", "prompts=2", "group=4", "pool=4", "made=1"]
    out = tmp_path / "page" / "anatomy.md"
    assert act(["only=raft,rloo", *small, "workers=1", f"output_dir={tmp_path}", f"out={out}"]) == 0
    text = out.read_text()
    assert "Refused when stale, and blank there: rloo." in text and "| raft" in text
    assert out.with_suffix(".svg").exists()
    rows = list(csv.DictReader(out.with_suffix(".csv").open()))
    assert [row["situation"] for row in rows[::2]] == [
        f"{stage}, {age}"
        for stage in ("base", "half-trained", "collapsed")
        for age in ("fresh", "stale")
    ]
