"""The report of a packed study is that of its run folders, as far as its counts go."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis.budgets import X_AXES
from analysis.packed import TRAINING, PackedStudy, is_counted
from analysis.report import build_sections
from analysis.report import main as report
from analysis.runs import SUMS
from experiments.studies.pack import main as pack
from tests.experiments.studies.packed_study import make_study

NOT_COUNTED = ("edit_distance", "distinct_2", "token_entropy")  # columns of table.csv
BUDGETS = [x for x in X_AXES if x != "step"]  # packed at evaluations only


@pytest.fixture(scope="module")
def study(tmp_path_factory, make_run, add_further):
    root = tmp_path_factory.mktemp("study")
    return make_study(root, make_run, add_further, ("margin=0.05", "control=ppo"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory, study):
    out = tmp_path_factory.mktemp("repository") / "study-s"
    assert pack([f"study={study.parent}/s.yaml", f"folder={study}", f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def reported(tmp_path_factory, packed):
    """The folder of the report of the packed study."""
    out = tmp_path_factory.mktemp("report")
    assert report([f"runs={packed}", f"out={out}"]) == 0
    return out


def counted(table):
    """The rows and columns that follow from counts."""
    if "metric" in table:
        table = table[table["metric"].map(is_counted).astype(bool)]
    others = [name for name in table if name.startswith(NOT_COUNTED)]
    return table.drop(columns=[*others, "path", "truncated"], errors="ignore").reset_index(
        drop=True
    )


def test_the_tables_are_those_of_the_run_folders(study, reported):
    names = sorted(file.name for file in (study / "report").glob("*.csv"))
    assert names == sorted(file.name for file in reported.glob("*.csv")) and len(names) > 20
    for name in names:
        mine, right = (
            counted(pd.read_csv(folder / name)) for folder in (reported, study / "report")
        )
        if name in ("verdicts.csv", "difficulty.csv"):
            assert len(right) and not len(mine)
            continue
        if name == "training.csv":
            known = mine[BUDGETS].notna()
            assert mine.loc[known["generated_tokens"], "step"].unique().tolist() == [10, 20]
            right[BUDGETS] = right[BUDGETS].where(known)
            assert {"reward_mean", "loss", "kl_ref"} < set(mine)
        pd.testing.assert_frame_equal(mine, right, check_dtype=False, rtol=1e-6, obj=name)


def test_the_answer_is_that_of_the_run_folders(study, reported):
    mine, right = (
        (folder / "table.md").read_text().partition("\n\n")[0]
        for folder in (reported, study / "report")
    )
    assert mine == right
    assert "Named before the runs" in mine and "Against ppo alone" in mine
    assert set(pd.read_csv(reported / "differences.csv")["margin"].dropna()) == {0.05}


def test_the_page_says_what_is_not_packed_and_shows_no_stand_in(reported):
    page = (reported / "report.html").read_text()
    assert page.count("The programs are not in a packed study") == 1
    assert page.count("neither the difficulties of its problems nor the other verdicts") == 1
    assert page.count("rewards and training curves have points there alone") == 1
    assert page.count("From a packed study: counts of samples, without their programs.") == 1
    assert 'class="explorer"' not in page and "wrong answer" not in page
    (data,) = re.findall(r'class="packed">([^<]+)<', page)
    data = json.loads(gzip.decompress(base64.b64decode(data)))
    assert set(data) == {"matrix"} and data["matrix"]["columns"] == ["base", "ppo", "spo-x_1.5"]
    assert "training reward</p>" in page and "<h3>Training curves</h3>" in page


def test_a_study_that_was_packed_without_training_curves_says_so(packed, tmp_path):
    old, out = shutil.copytree(packed, tmp_path / "study-s"), tmp_path / "report"
    (old / TRAINING).unlink()
    lines = (old / SUMS).read_text().splitlines(keepends=True)
    (old / SUMS).write_text("".join(line for line in lines if TRAINING not in line))
    assert report([f"runs={old}", f"out={out}"]) == 0
    page = (out / "report.html").read_text()
    assert page.count("is not in this packed study, which was written before such") == 1
    assert "training reward</p>" not in page and "have points there alone" not in page
    assert pd.read_csv(out / "health.csv")["reward_kept"].isna().all()
    assert not {"loss", "reward_mean_low"} & set(pd.read_csv(out / "training.csv"))
    assert pd.read_csv(out / "curve.csv")["kl_ref"].dropna().tolist() == [0.0] * 2


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("counts.parquet", "counts.parquet is missing; check the folder out again"),
        ("contrasts.json", "contrasts.json is missing"),
        ("SHA256SUMS", "SHA256SUMS is missing"),
        ("s.yaml", "0 studies (*.yaml) in place of one"),
    ],
)
def test_a_missing_file_is_one_line(file, fault, packed, tmp_path, capsys):
    copy = shutil.copytree(packed, tmp_path / "study-s")
    (copy / file).unlink()
    assert report([f"runs={copy}", f"out={tmp_path / 'report'}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {copy.resolve()}: ") and fault in line
    assert not (tmp_path / "report").exists()


def test_a_wrong_checksum_is_one_line_or_left_out(packed, tmp_path, capsys):
    copy = shutil.copytree(packed, tmp_path / "study-s")
    (copy / "metrics.parquet").write_bytes((copy / "counts.parquet").read_bytes())
    assert report([f"runs={copy}", f"out={tmp_path / 'report'}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "damaged packed study, metrics.parquet is not that of SHA256SUMS; check" in line
    sections, skipped = build_sections([copy], True)
    assert sections == [] and skipped == [
        f"Damaged and left out: {copy}: damaged packed study, metrics.parquet is not that of "
        "SHA256SUMS."
    ]


RESULTS = Path(__file__).parents[3] / "docs" / "results"


def test_a_run_without_a_reward_of_its_own_has_the_column_all_the_same():
    runs = PackedStudy(RESULTS / "study-size").runs.values()
    rewards = {run.path.name: run.metrics["reward_mean"] for run in runs}
    assert len(rewards) == 20
    for name, reward in rewards.items():
        assert reward.isna().all() == name.startswith("sft-")


@pytest.mark.slow  # each takes ten seconds
@pytest.mark.parametrize("folder", sorted(RESULTS.glob("study-*/")), ids=lambda path: path.name)
def test_each_packed_study_of_the_repository_has_a_page(folder, tmp_path):
    assert report([f"runs={folder}", f"out={tmp_path}"]) == 0
    assert 100_000 < (tmp_path / "report.html").stat().st_size < 3_000_000
