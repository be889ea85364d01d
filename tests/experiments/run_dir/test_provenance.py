"""Where the numbers of a run come from, and its machine."""

import json
import os
import subprocess
import sys
import time
from ast import literal_eval

from experiments.run_dir import provenance
from experiments.run_dir.ledger import machine_cpu_s, own_cpu_s
from experiments.run_dir.provenance import hardware, processor

# A run folder says which code made it; secrets are masked.

TOKEN = "hf_" + "a" * 20


def test_changed_files_and_packages_are_named(tmp_path, monkeypatch):
    inputs = {"data": [tmp_path / "rows.jsonl", None], "model": [tmp_path / "weights"]}
    (tmp_path / "weights").mkdir()
    for file in ("rows.jsonl", "weights/a.safetensors"):
        (tmp_path / file).write_text("1")
    facts = provenance.keep_provenance(tmp_path, inputs)
    assert set(facts) == {"diff"}
    (tmp_path / "run.json").write_text(json.dumps({"packages": provenance.packages()}))
    assert provenance.changes(tmp_path) == {}
    code = json.loads((tmp_path / "digests.json").read_text())["code"]
    assert {"algorithms/spo.py", "experiments/trainer.py", "conf/prompt/stdin.jinja"} <= set(code)
    assert {"envs/tasks/mini.py", "envs/tasks/mini.yaml"} <= set(code)
    (tmp_path / "rows.jsonl").write_text("2")
    assert provenance.changes(tmp_path) == {"data": [str(tmp_path / "rows.jsonl")]}
    (tmp_path / "weights/a.safetensors").write_text("12")
    assert set(provenance.changes(tmp_path)) == {"data", "model"}
    (tmp_path / "rows.jsonl").unlink()  # as where a run goes on on another machine
    assert set(provenance.changes(tmp_path)) == {"model"}
    (tmp_path / "digests.json").write_text(json.dumps({"code": code | {"algorithms/spo.py": "x"}}))
    (tmp_path / "run.json").write_text(json.dumps({"packages": {"torch": "0.1"}}))
    changed = provenance.changes(tmp_path)
    assert changed["code"] == ["algorithms/spo.py"] and "torch 0.1 → " in changed["packages"][0]
    assert provenance.keep_provenance(tmp_path, inputs, resumed_at=3)["changed"] == changed


def test_uncommitted_changes_and_new_files_are_kept_without_secrets(tmp_path, monkeypatch):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "SOURCES", "*.py")
    for cached in (provenance.commit, provenance._uncommitted, provenance._digests):
        cached.cache_clear()
    (tmp_path / "run.py").write_text("1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    (tmp_path / "run.py").write_text(f"token = '{TOKEN}'\n")
    (tmp_path / "new.py").write_text("2\n")
    folder = tmp_path / "out"
    folder.mkdir()
    facts = provenance.keep_provenance(folder, {})
    patch = (folder / "code.diff").read_text()
    assert facts["diff"]["file"] == "code.diff" and provenance.commit().endswith("+")
    assert "+2" in patch and "token = '***'" in patch and TOKEN not in patch
    for cached in (provenance.commit, provenance._uncommitted, provenance._digests):
        cached.cache_clear()


def test_a_command_line_is_kept_without_secrets(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "long-secret-value")
    words = ["python", "run.py", f"model.path=x?{TOKEN}", "a.token=b", "c=long-secret-value d"]
    text = provenance.command_text(words)
    assert text == "python run.py 'model.path=x?***' 'a.token=***' 'c=*** d'"
    url = "http://user:password@host"
    assert provenance.without_secrets(url) == "http://***@host"


def test_a_run_knows_its_cpu_and_the_instructions_that_its_sums_are_made_with():
    told = "from experiments.run_dir.provenance import hardware; print(hardware())"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    other = subprocess.run(
        [sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True
    )
    assert literal_eval(other.stdout) == hardware() | {"instructions": "DEFAULT"}
    assert hardware()["cpu"] == processor()


def test_descendants_and_the_whole_machine_are_on_the_clock():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    clocks = (own_cpu_s, machine_cpu_s)
    before, own = [clock() for clock in clocks], time.process_time()
    subprocess.run([sys.executable, "-c", burn], check=True)
    # Each clock is cut to its tick of 10 ms.
    assert all(clock() - start >= 0.28 for clock, start in zip(clocks, before, strict=True))
    assert time.process_time() - own < 0.28
