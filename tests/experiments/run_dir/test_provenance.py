"""What a run's numbers come from: which files count, and what is said to have changed."""

import json
import os
import platform
import re

import pytest

from experiments.run_dir import provenance
from experiments.run_dir.provenance import MOST_BYTES, changes, digests, keep_provenance
from experiments.run_dir.records import Records
from tests.experiments.compose import config

TREE = {
    "experiments/trainer.py": "from experiments.build import (\n    build,\n    other,\n)\n",
    "experiments/build.py": "import experiments.run_dir.progress\n",
    "experiments/run_dir/progress.py": "",
    "experiments/study.py": "from experiments import trainer\n",
    "algorithms/__init__.py": "",
    "algorithms/base.py": "",
    "algorithms/spo.py": "def f():\n    from algorithms import base\n",
    "algorithms/grpo.py": "import algorithms.base as b\n",
    "envs/tasks/mini/task.py": "",
    "envs/sandbox/inside/main.py": "",
    "conf/algo/spo.yaml": "",
    "conf/prompt/stdin.jinja": "",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small tree in place of this one; a function that changes a file of it."""
    for name, text in TREE.items():
        write(tmp_path / "tree" / name, text)
    monkeypatch.setattr(provenance, "ROOT", tmp_path / "tree")

    def edit(name, text="# edited"):
        write(tmp_path / "tree" / name, TREE.get(name, "") + text)
        provenance._code.cache_clear()

    edit("run.py", "")
    yield edit
    provenance._code.cache_clear()


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def run(tmp_path):
    """A function that writes a run folder's provenance; returns the folder."""

    def made(given, **info):
        facts = {"versions": {"python": platform.python_version()}, "packages": {}} | info
        folder = write(tmp_path / "run" / "run.json", json.dumps(facts)).parent
        keep_provenance(folder, given)
        return folder

    return made


def test_a_loss_counts_for_its_algorithm_and_what_is_shared_for_all(tree):
    spo, grpo = (digests(config(f"algo={algo}"))["code"] for algo in ("spo", "grpo"))
    shared = {
        *("experiments/trainer.py", "experiments/build.py", "algorithms/base.py"),
        *("algorithms/__init__.py", "envs/tasks/mini/task.py", "envs/sandbox/inside/main.py"),
        "conf/prompt/stdin.jinja",
    }
    assert set(spo) - shared == {"algorithms/spo.py"}
    assert set(grpo) - shared == {"algorithms/grpo.py"}


def test_of_this_tree_what_computes_counts_and_what_shows_does_not():
    code = digests(config("algo=spo"))["code"]
    losses = {name for name in digests(config("algo=grpo"))["code"] if name.startswith("algor")}
    assert losses & {"algorithms/grpo.py", "algorithms/spo.py"} == {"algorithms/grpo.py"}
    assert {"algorithms/spo.py", "algorithms/tensors.py", "envs/judge/checkers.py"} <= set(code)
    assert {"experiments/engines/hf.py", "envs/tasks/mini/grids.py"} <= set(code)
    others = ("algorithms/ppo.py", "experiments/run_dir/progress.py", "experiments/runner.py")
    assert not [name for name in code if name in others]


def test_what_changed_is_named_until_it_is_as_before(tree, run):
    given = config("algo=spo")
    folder = run(given)
    assert changes(folder, given) == {}
    for name in ("algorithms/grpo.py", "conf/algo/spo.yaml", "experiments/run_dir/progress.py"):
        tree(name)
        assert changes(folder, given) == {}, name
    tree("algorithms/spo.py")
    tree("conf/prompt/stdin.jinja")
    assert changes(folder, given) == {"code": ["algorithms/spo.py", "conf/prompt/stdin.jinja"]}
    tree("algorithms/spo.py", "")
    tree("conf/prompt/stdin.jinja", "")
    assert changes(folder, given) == {}


def test_a_users_own_modules_count(tree, tmp_path, monkeypatch, run):
    write(tmp_path / "mine" / "my_task.py", "import my_helper\nimport os\n")
    helper = write(tmp_path / "mine" / "my_helper.py", "")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    given = config("algo=spo")
    given.task.make = "my_task.make"
    folder = run(given)
    helper.write_text("x = 1")
    provenance._code.cache_clear()
    assert changes(folder, given) == {"code": [str(helper)]}


def test_data_and_model_count_by_content(tmp_path, run):
    data = write(tmp_path / "rows" / "train.jsonl", "{}\n")
    weights = write(tmp_path / "model" / "model.safetensors", "w" * 9)
    given = config("algo=spo")
    given.task.path, given.model.path = str(data.parent), str(weights.parent)
    folder = run(given)
    for file in (data, weights):
        os.utime(file, (1, 1))
    assert changes(folder, given) == {}
    write(data, "{ }")
    more = write(data.with_name("test.jsonl"), "{}\n")
    weights.write_text("w" * 8 + "v")
    found = changes(folder, given)
    assert found == {"data": sorted([str(data), str(more)]), "model": [str(weights)]}


def test_packages_count_but_for_those_that_draw(run, monkeypatch):
    given = config("algo=spo")
    monkeypatch.setattr(provenance, "packages", lambda: {"torch": "2", "wandb": "2", "ray": "1"})
    folder = run(given, packages={"torch": "1", "wandb": "1", "peft": "1"})
    assert changes(folder, given) == {"packages": ["peft 1 → none", "torch 1 → 2"]}


def test_a_run_without_digests_says_so(tmp_path):
    assert changes(tmp_path, config("algo=spo")) == {"unrecorded": []}


def test_code_that_changed_before_a_run_was_resumed_is_named_for_good(tree, tmp_path, monkeypatch):
    given = config("algo=spo", f"output_dir={tmp_path}/out")
    monkeypatch.setattr(provenance, "uncommitted_changes", lambda: b"patch")
    records = Records(given)
    assert records.info["command"] and records.info["packages"]["torch"]
    assert (records.folder / records.info["diff"]["file"]).read_bytes() == b"patch"
    records.finish("interrupted")
    tree("algorithms/spo.py")
    records = Records(given, records.folder)
    tree("algorithms/spo.py", "")
    records.finish("finished")
    resumed = json.loads((records.folder / "run.json").read_text())["resumed"]
    assert resumed[0]["changed"] == {"code": ["algorithms/spo.py"]}
    assert (records.folder / resumed[0]["diff"]["file"]).name == "code-after-0.diff"
    assert changes(records.folder, given) == {"code": ["algorithms/spo.py"]}


@pytest.mark.parametrize(
    ("patch", "kept"),
    [(b"", None), (b"token = 'hf_abcdefghijklmnopqrst'\xff", b"token = '***'\xff")],
)
def test_the_difference_is_kept_without_secrets(patch, kept, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "uncommitted_changes", lambda: patch)
    facts = keep_provenance(tmp_path, config("algo=spo"))["diff"]
    file = tmp_path / "code.diff"
    assert (file.read_bytes() if file.exists() else None) == kept
    assert (facts or {}).get("bytes") == (len(kept) if kept else None)


def test_of_a_large_difference_the_hash_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "uncommitted_changes", lambda: b"x" * (MOST_BYTES + 1))
    facts = keep_provenance(tmp_path, config("algo=spo"))["diff"]
    assert (facts["file"], facts["bytes"], len(facts["sha256"])) == (None, MOST_BYTES + 1, 64)
    assert not (tmp_path / "code.diff").exists()


def test_what_cannot_be_written_ends_no_run(tmp_path):
    assert keep_provenance(tmp_path / "absent", config("algo=spo")) == {}


def test_files_that_only_show_are_where_the_pattern_has_them():
    """A file that was moved would count as other code again."""
    named = set(re.findall(r"(?<=[(|])\w+(?=[|)])", provenance.SHOWING.pattern))
    files = (file.relative_to(provenance.ROOT) for file in provenance.ROOT.glob("e*/*/*.py"))
    found = {file.stem for file in files if provenance.SHOWING.fullmatch(file.as_posix())}
    assert found == named and "readable" in named
