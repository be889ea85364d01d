"""The report's command: its files, its page as text, and one line for bad input."""

import html.parser
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.figures import group_styles
from analysis.report import main
from analysis.runs import load_run, study_file, sums
from tests.analysis.attacks import ATTACK, plant

ROOT = Path(__file__).resolve().parents[2]


class Page(html.parser.HTMLParser):
    """Collects the text, the panels of figures, the tags left open and what lies outside."""

    def __init__(self, text):
        super().__init__()
        self.words, self.panels, self.open, self.outside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag == "svg" and named["class"].startswith("panel"):
            self.panels.append(named["aria-label"])
        if tag in ("link", "iframe", "img") or "src" in named:
            self.outside.append(tag)
        if tag not in ("meta", "img", "br", "wbr", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)


def files(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def six_runs(tmp_path_factory, make_run):
    """The folder of a report of six runs, and the process that made it."""
    folder = tmp_path_factory.mktemp("six")
    for algo in ("grpo", "ppo", "spo"):
        for seed in (0, 1):
            run = make_run(folder / "outputs", algo, seed, info={"error": ATTACK})
            plant(run, 3)
    out = folder / "report"
    before = files(folder / "outputs")
    command = [sys.executable, "-m", "analysis.report", f"runs={folder}/outputs", f"out={out}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert files(folder / "outputs") == before
    return out, done.stdout


def test_the_same_numbers_stand_in_all_formats(six_runs):
    out, printed = six_runs
    assert printed.splitlines()[-1] == f"report: {out / 'report.html'}"
    results = pd.read_csv(out / "table.csv")
    assert list(results["label"]) == ["base", "grpo", "ppo", "spo"]
    page = " ".join(Page((out / "report.html").read_text()).words)
    for text in (printed, page, (out / "table.md").read_text(), (out / "table.tex").read_text()):
        assert all(f"{value:.3f}" in text for value in results["pass@10"])
    tables = sorted(out.glob("*.csv"))
    assert len(tables) == 20
    for table in tables:
        there, read = pd.read_parquet(table.with_suffix(".parquet")), pd.read_csv(table)
        assert list(there.columns) == list(read.columns) and len(there) == len(read)
    for text in ("spo-1", "0123abc", "Fewer than 5 seeds", "distinct of 5", "python run.py"):
        assert text in page


def test_the_page_is_whole_and_text_of_run_folders_is_escaped(six_runs):
    out, printed = six_runs
    text = (out / "report.html").read_text()
    assert "<script>alert" not in text and "<img" not in text
    for one in (text, printed, (out / "table.md").read_text(), (out / "table.tex").read_text()):
        assert not set("\x00\x1b\u202e\u2066\u2028") & set(one)
    page = Page(text)
    assert page.open == page.outside == []
    # A forest plot and its front for three metrics; reward, pass@1, pass@10 and diversity on four
    # axes, less the reward against the KL, and two over pass@1; one of pass@k; reward, loss and KL
    # at each step on four axes.
    assert len(page.panels) == 3 * 2 + 4 * 4 + 3 + 2 + 1 + 3 * 4


def test_each_experiment_has_a_section(tmp_path, make_run, capsys):
    for i, name in enumerate(("a b", "a/b")):
        for every in (1, 8):
            tuned = f"9 trials (steps=4), {every} again (steps=6), table x.csv"
            config = {"name": name, "train.sync_every": every, "tuned": tuned}
            make_run(tmp_path / "outputs" / f"{i}-{every}", "spo", config=config, problems=6)
    failed = make_run(tmp_path / "outputs", "ppo", status="failed", config={"name": "broken"})
    (failed / "evals.parquet").unlink()
    assert main([f"runs={tmp_path}/outputs", f"out={tmp_path}/report"]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert all(f'<section id="{slug}"' in page for slug in ("a-b", "a-b-1", "broken"))
    assert 'data-labels="[&#34;spo sync_every=8&#34;]">old data<' in page
    for text in ("<small>steps=4</small>", "<td>9 trials</td><td>8 again</td>"):
        assert page.count(text) == 2
    table = pd.read_csv(tmp_path / "report" / "table.csv")
    assert table["step"].dtype == int and set(table["experiment"]) == {"a b", "a/b"}
    assert set(table["label"]) > {"spo sync_every=1", "spo sync_every=8"}
    assert "a/b" in capsys.readouterr().out


def test_the_runs_own_k_is_in_all_tables(tmp_path, make_run, six_runs):
    make_run(tmp_path / "outputs", problems=6, samples=8, config={"eval.k": [2, 4, 16]})
    out = tmp_path / "report"
    assert main([f"runs={tmp_path}/outputs", f"out={out}"]) == 0
    text = (out / "table.md").read_text()
    assert "pass@2" in text and "pass@16 is left out" in text and "pass@10" not in text
    assert pd.read_csv(out / "pass_at_k.csv")["k"].max() == 8
    assert set(pd.read_csv(out / "difficulty.csv")["metric"]) == {"pass@2", "pass@4"}
    # Six problems: hollow points without intervals; six runs have twelve, and intervals.
    for page, few in ((out / "report.html", True), (six_runs[0] / "report.html", False)):
        forest = page.read_text().partition('<svg class="panel forest')[2].partition("</svg>")[0]
        assert ('class="marker hollow"' in forest, 'class="bar"' in forest) == (few, not few)


def test_colour_is_the_algorithm_marker_the_start_and_dash_the_variant(tmp_path, make_run):
    kinds = {"spo": {}, "spo b": {"algo.beta": 1.0}, "spo c": {"model.name": "later"}, "ppo": {}}
    paths = [make_run(tmp_path / k, k.split()[0], config=config) for k, config in kinds.items()]
    experiment = build_experiment("compare", list(map(load_run, paths)))
    styles, starts = group_styles(experiment), experiment.starts
    labels = {group.runs[0].path.parts[-3]: group.label for group in experiment.groups}
    plain, variant, later, ppo = (styles[labels[kind]] for kind in kinds)
    assert plain.name == variant.name == later.name != ppo.name
    assert plain.marker == variant.marker == ppo.marker != later.marker
    assert plain.dash == ppo.dash == later.dash != variant.dash
    assert styles[starts[labels["spo c"]]][:3] == ("base", "", later.marker)


def test_a_packed_studys_presets_stand_in_the_legend(tmp_path):
    folder = shutil.copytree(ROOT / "docs" / "results" / "study-size", tmp_path / "study-size")
    study_file(folder).open("a").write('presets: {"<b>mine": [ppo, sft]}\n')
    (folder / "SHA256SUMS").unlink()
    lines = [f"{d}  {n}\n" for n, d in sums(folder, (p.name for p in folder.iterdir())).items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    assert main([f"runs={folder}", f"out={tmp_path}/report"]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert 'data-labels="[&#34;ppo&#34;, &#34;sft&#34;]">&lt;b&gt;mine<' in page


def test_a_damaged_run_ends_it_before_anything_is_written(tmp_path, make_run, capsys):
    make_run(tmp_path / "outputs", "spo", 0)
    bad = make_run(tmp_path / "outputs", "spo", 1)
    (bad / "evals.parquet").write_bytes(b"PAR1 half")
    arguments = [f"runs={tmp_path}/outputs", f"out={tmp_path}/report"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(bad) in error
    assert not (tmp_path / "report").exists()
    assert main([*arguments, "skip_damaged=true"]) == 0
    assert "Damaged and left out" in (tmp_path / "report" / "table.md").read_text()


def test_an_unfinished_run_is_reported_as_far_as_it_got(tmp_path, make_run):
    path = make_run(tmp_path / "outputs", status="running")
    rows = pd.read_parquet(path / "metrics.parquet").to_dict("records")
    rows.append(rows[-1] | {"step": 21, "reward_mean": float("nan")})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (path / "metrics.jsonl").write_text(lines + '{"step": 22, "rew')  # killed while writing
    evals = pd.read_parquet(path / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(path / "evals.parquet")
    assert main([f"runs={tmp_path}/outputs", f"out={tmp_path}/report"]) == 0
    assert list(pd.read_csv(tmp_path / "report" / "table.csv")["label"]) == ["base"]
    assert list(pd.read_csv(tmp_path / "report" / "runs.csv")["trained_steps"]) == [21]


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["run=outputs"], 2, "runs"),
        (["skip_damaged=maybe"], 2, "skip_damaged"),
        (["margin=3"], 2, "margin"),
        (["runs={tmp}/absent"], 1, "absent"),
        (["runs={tmp} {tmp}"], 1, "runs={tmp},{tmp}"),
        (["runs={tmp}/empty"], 1, "no run folder in there"),
        (["runs={tmp}/runs", "control=ppo"], 1, "control=ppo"),
        (["runs={tmp}/runs", "out={tmp}/file"], 2, "is a file"),
        (["runs={tmp}/runs", "out={tmp}/file/inside"], 1, "Not a directory"),
        (["runs={tmp}/runs", "out={tmp}/runs/compare/spo-0/report"], 2, "lies in the run folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_everything_alone(
    tmp_path, make_run, capsys, arguments, code, fault
):
    make_run(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    before = files(tmp_path)
    assert main([argument.format(tmp=tmp_path) for argument in arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert fault.format(tmp=tmp_path) in error
    assert files(tmp_path) == before
