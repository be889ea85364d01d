import html.parser
import json
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.report import main

ROOT = Path(__file__).resolve().parents[3]


class Page(html.parser.HTMLParser):
    """Collects the text, the panels of figures, the tags left open and what lies outside."""

    def __init__(self, text):
        super().__init__()
        self.words, self.panels, self.open, self.outside = [], [], [], []
        self.links, self.places = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag == "svg" and named["class"].startswith("panel"):
            self.panels.append(named["aria-label"])
        if tag in ("link", "iframe", "img") or "src" in named:
            self.outside.append(tag)
        if "href" in named:
            self.links.add(named["href"])
        if "id" in named:
            self.places.add(f"#{named['id']}")
        if tag not in ("meta", "img", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)


def files(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def six_runs(tmp_path_factory, make_run):
    """The folders of six runs and of their report, and the process that made it."""
    folder = tmp_path_factory.mktemp("six")
    runs = folder / "outputs"
    for algo in ("grpo", "ppo", "spo"):
        for seed in (0, 1):
            make_run(runs, algo, seed, info={"error": "<script>alert(1)</script>"})
    before = files(runs)
    out = folder / "report"
    (out / "figures" / "another").mkdir(parents=True)
    for name in ("kl.png", "notes.txt"):
        (out / "figures" / "another" / name).touch()
    done = subprocess.run(
        [sys.executable, "-m", "analysis.report", f"runs={runs}", f"out={out}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert files(runs) == before
    return out, done


def test_report_of_six_runs_from_the_command_line(six_runs):
    out, done = six_runs
    last_line = done.stdout.splitlines()[-1]
    assert last_line == f"report: {out / 'report.html'}"
    results = pd.read_csv(out / "table.csv")
    assert list(results["label"]) == ["base", "grpo", "ppo", "spo"]
    for row in results.to_dict("records"):
        assert f"{row['pass@1']:.3f}" in done.stdout
        assert f"{row['pass@10']:.3f}" in (out / "table.md").read_text()
    assert len(pd.read_csv(out / "runs.csv")) == 6
    settings = pd.read_csv(out / "settings.csv")
    assert set(settings["group"]) == {"grpo", "ppo", "spo"}
    page = (out / "report.html").read_text()
    trained = page.partition("How each group was trained")[2].partition("<summary>Runs</summary>")[
        0
    ]
    assert "<dt>prompts × responses</dt><dd>16 × 8</dd>" in trained
    assert trained.count("python run.py from=") == 3
    differences = pd.read_csv(out / "differences.csv")
    assert len(differences[differences["metric"] == "pass@1"]) == 6
    assert set(pd.read_csv(out / "tiers.csv")["label"]) == {"grpo", "ppo", "spo"}
    ways = ("steps", "tokens", "judged_programs", "wall_time", "distance_from_the_base")
    drawn = {"headline", "pass_at_k", *(f"learning_{way}" for way in ways)}
    drawn |= {f"training_{way}" for way in ways[:4]}
    assert {file.stem for file in (out / "figures" / "compare").glob("*.svg")} == drawn
    (left,) = (out / "figures" / "another").iterdir()  # a former report's figure has gone
    assert left.name == "notes.txt"
    page = Page((out / "report.html").read_text())
    assert page.open == []
    assert page.outside == []
    # Two of the headline; reward, pass@1, pass@10 and diversity on four axes, less the reward
    # against the KL; one of pass@k; reward, loss and KL at each step on four axes.
    assert len(page.panels) == 2 + 4 * 4 + 3 + 1 + 3 * 4
    assert all("spo" in said for said in page.panels)
    text = " ".join(page.words)
    for words in ("spo-1", "0123abc", "d4ta", "Fewer than 5 seeds", "distinct of 5"):
        assert words in text


def test_a_key_has_no_group_that_has_no_point(tmp_path, make_run):
    for algo, skill in (("spo", 6.0), ("ppo", -20.0)):  # one that solves nothing is not diverse
        make_run(tmp_path / "outputs", algo, 0, skill=skill, config={"eval.k": [1]})
    assert main([f"runs={tmp_path / 'outputs'}", f"out={tmp_path / 'report'}"]) == 0
    (headline,) = (tmp_path / "report" / "figures").glob("*/headline.svg")
    keys = headline.read_text().partition("swatch")[2]
    assert ">spo</text>" in keys and ">ppo</text>" not in keys
    assert (
        "the chance that at least one of 1" not in (tmp_path / "report" / "report.html").read_text()
    )


def test_a_run_without_a_base_has_a_page(tmp_path, make_run):
    evals = make_run(tmp_path / "outputs", "spo", 0) / "evals.parquet"
    rows = pd.read_parquet(evals)
    rows[rows["step"] == rows["step"].max()].to_parquet(evals)
    assert main([f"runs={tmp_path / 'outputs'}", f"out={tmp_path / 'report'}"]) == 0
    assert "nothing to compare it with" in (tmp_path / "report" / "report.html").read_text()


def test_the_page_says_if_the_evaluated_problems_were_those_of_training(tmp_path, make_run):
    make_run(tmp_path / "outputs", "spo", 0, problems=4, config={"eval.split": "train"})
    page, arguments = tmp_path / "report.html", [f"runs={tmp_path}/outputs", f"out={tmp_path}"]
    assert main(arguments) == 0
    assert "wrote several programs for the problems of its training set" in page.read_text()
    make_run(tmp_path / "outputs", "ppo", 0, problems=4)
    assert main(arguments) == 0
    assert "not trained on; in 1 group, for those that it was trained on." in page.read_text()


def test_pairs_are_too_many_for_a_table_only_where_so_many_were_compared(
    tmp_path, make_run, monkeypatch
):
    monkeypatch.setattr("analysis.report.render.MATRIX_LABELS", 1)
    make_run(tmp_path / "outputs", "spo", 0)
    evals = make_run(tmp_path / "outputs", "ppo", 0, status="running") / "evals.parquet"
    rows = pd.read_parquet(evals)
    rows[rows["step"] == 0].to_parquet(evals)
    page, arguments = tmp_path / "report.html", [f"runs={tmp_path}/outputs", f"out={tmp_path}"]
    assert main(arguments) == 0
    assert "too many pairs" not in page.read_text()
    rows.to_parquet(evals)
    assert main(arguments) == 0
    assert "2 groups make too many pairs" in page.read_text()


def test_each_experiment_has_a_section_and_labels_that_can_be_read(tmp_path, make_run, capsys):
    place = {"name": "docker", "strength": "no network"}
    task = {"left_out": {"no tests": 17}, "decontaminated": []}
    for i, name in enumerate(("a b", "a/b")):
        for every in (1, 8):
            config = {
                "name": name,
                "train.sync_every": every,
                "engine.batch_size": 64 * every,
                "engine.memory_share": 0.5 / every,
                "model.path": f"/data/models/{'warmed-up-' * 12}{every}/final",
                "task.filter": {"difficulty": ["EASY", "MEDIUM"][:every]},
            }
            info = {"sandbox": place, "task": task, "hardware": {"cpus": 2, "memory_gb": every}}
            root = tmp_path / "outputs" / f"{i}-{every}"
            make_run(root, "spo", config=config, info=info, problems=6)
    failed = make_run(tmp_path / "outputs", "ppo", status="failed", config={"name": "broken"})
    (failed / "evals.parquet").unlink()
    out = tmp_path / "report"
    assert main([f"runs={tmp_path}/outputs", f"out={out}"]) == 0
    printed = capsys.readouterr().out
    page = Page((out / "report.html").read_text())
    assert page.open == page.outside == []
    assert {link for link in page.links if link.startswith("#")} == page.places
    assert all((out / link).is_file() for link in page.links if not link.startswith("#"))
    assert page.places == {"#content", "#words", "#a-b", "#a-b-1", "#broken"}
    assert len(page.panels) == 2 * (2 + 4 * 4 + 3 + 1 + 3 * 4)
    table = pd.read_csv(out / "table.csv")
    assert table["step"].dtype == int
    assert set(table["experiment"]) == {"a b", "a/b"}
    assert set(table["label"]) > {"spo sync_every=1", "spo sync_every=8"}
    assert table["label"].str.len().max() < 50
    text = " ".join(page.words)
    assert "17 left out: no tests 17" in text
    for words in (text, printed, (out / "table.md").read_text()):
        assert "a/b" in words
        assert "broken" in words
        assert "{" not in words


def test_the_runs_own_k_is_in_all_tables(tmp_path, make_run, capsys):
    make_run(tmp_path / "outputs", problems=6, samples=8, config={"eval.k": [2, 4, 16]})
    out = tmp_path / "report"
    assert main([f"runs={tmp_path}/outputs", f"out={out}"]) == 0
    page = " ".join(Page((out / "report.html").read_text()).words)
    printed = capsys.readouterr().out
    for text in (page, printed, (out / "table.md").read_text()):
        assert "pass@2" in text
        assert "pass@4" in text
        assert "pass@16 is left out" in text
        assert "pass@10" not in text
    assert pd.read_csv(out / "pass_at_k.csv")["k"].max() == 8
    assert set(pd.read_csv(out / "difficulty.csv")["metric"]) == {"pass@2", "pass@4"}


def test_text_of_run_folders_is_escaped_and_control_characters_do_nothing(
    tmp_path, make_run, capsys
):
    script, control = "<script>alert(1)</script>", "\x1b[2J \u202e back \x00"
    make_run(tmp_path / "outputs", status="failed", info={"error": script, "sandbox": script})
    make_run(tmp_path / "outputs", "ppo", status="failed", info={"error": control})
    out = tmp_path / "report"
    assert main([f"runs={tmp_path}/outputs", f"out={out}"]) == 0
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    for text in (page, (out / "table.md").read_text(), capsys.readouterr().out):
        assert "⟨U+001B⟩[2J ⟨U+202E⟩ back ⟨U+0000⟩" in " ".join(text.split())
        assert not set(control) & set(text) - set(" [2J back")


def test_every_table_is_there_as_csv_and_parquet_and_the_main_ones_as_latex(six_runs):
    out, _ = six_runs
    tables = sorted(out.glob("*.csv"))
    assert len(tables) == 22
    for table in tables:
        there = pd.read_parquet(table.with_suffix(".parquet"))
        read = pd.read_csv(table)
        assert list(there.columns) == list(read.columns) and len(there) == len(read)
    tex = (out / "table.tex").read_text()
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 4
    assert r"95 \% intervals" in tex and "−" not in tex


def test_a_damaged_run_ends_it_before_anything_is_written(tmp_path, make_run, capsys):
    make_run(tmp_path / "outputs", "spo", 0)
    bad = make_run(tmp_path / "outputs", "spo", 1)
    (bad / "evals.parquet").write_bytes(b"PAR1 half")
    out = tmp_path / "report"
    out.mkdir()
    (out / "report.html").write_text("the earlier report")
    arguments = [f"runs={tmp_path}/outputs", f"out={out}"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(bad) in error
    assert "evals.parquet cannot be read" in error
    assert [p.name for p in out.iterdir()] == ["report.html"]
    assert (out / "report.html").read_text() == "the earlier report"
    assert main([*arguments, "skip_damaged=true"]) == 0
    assert "Damaged and left out" in (out / "table.md").read_text()


def test_a_run_that_has_only_its_first_evaluation_is_reported(tmp_path, make_run):
    path = make_run(tmp_path / "outputs", status="running")
    evals = pd.read_parquet(path / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(path / "evals.parquet")
    (path / "metrics.parquet").unlink()
    assert main([f"runs={tmp_path}/outputs", f"out={tmp_path}/report"]) == 0
    assert list(pd.read_csv(tmp_path / "report" / "table.csv")["label"]) == ["base"]


def test_steps_of_a_killed_run_are_read_from_its_journal(tmp_path, make_run):
    path = make_run(tmp_path / "outputs", status="running")
    rows = pd.read_parquet(path / "metrics.parquet").to_dict("records")
    rows.append(rows[-1] | {"step": 21, "reward_mean": float("nan")})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (path / "metrics.jsonl").write_text(lines + '{"step": 22, "rew')
    assert main([f"runs={tmp_path}/outputs", f"out={tmp_path}/report"]) == 0
    runs = pd.read_csv(tmp_path / "report" / "runs.csv")
    assert list(runs["trained_steps"]) == [21]


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["run=outputs"], 2, "'run=outputs': did you mean 'runs'? write key=value, with a key of"),
        (
            ["outputs"],
            2,
            "'outputs': did you mean runs=outputs? write key=value, with a key of runs",
        ),
        (["runs="], 2, "runs=: it must not be empty"),
        (["skip_damaged=maybe"], 2, "it is true or false"),
        (["runs={tmp}/absent"], 1, "no such folder"),
        (["runs={tmp} {tmp}"], 1, "several have commas between them: runs={tmp},{tmp}"),
        (["runs={tmp}", "{tmp}"], 2, "quote a value with blanks, e.g. 'runs={tmp} {tmp}'"),
        (["runs={tmp}/empty"], 1, "no run folder in there"),
        (["runs={tmp}/runs", "out={tmp}/file"], 2, "is a file"),
        (["runs={tmp}/runs", "out={tmp}/file/inside"], 1, "Not a directory"),
        (["runs={tmp}/runs", f"out={'a' * 300}"], 1, "File name too long"),
        (["runs={tmp}/empty,,"], 1, "empty: no run folder in there"),
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
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert fault.format(tmp=tmp_path) in error
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("module", "key"), [("analysis.report.command", "runs="), ("analysis.compare", "a=")]
)
def test_help_is_quick_and_loads_nothing_heavy(module, key):
    code = f"import sys, {module} as command; command.main(['--help']); print(sorted(sys.modules))"
    before = cpu_seconds_of_children()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert cpu_seconds_of_children() - before < 2  # not wall time, which depends on the load
    assert key in done.stdout
    for heavy in ("pandas", "numpy", "matplotlib", "torch"):
        assert f"'{heavy}'" not in done.stdout


def cpu_seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
