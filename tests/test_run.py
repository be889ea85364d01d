"""The command line: help, checks before anything heavy, and one line for every mistake."""

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pandas
import pytest

import run
from experiments.config.composition import CONF, compose, config_of

ROOT = Path(__file__).resolve().parents[1]


def call(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def test_help_is_in_our_words_and_quick():
    begin = time.monotonic()
    done = call("--help")
    assert done.returncode == 0
    listed = done.stdout.split("algo: ")[1].split("\n")[0]
    assert {"grpo", "ppo", "sft", "spo"} <= set(listed.split(", "))
    assert "Soft Policy Optimization" in done.stdout
    assert time.monotonic() - begin < 20  # about 1 s alone; CI machines are loaded


def test_cfg_prints_the_composed_configuration():
    done = call("--cfg", "job", "algo=grpo", "train.group_size=4")
    assert "zero_variance: keep" in done.stdout
    assert "group_size: 4" in done.stdout


def test_an_experiment_wins_over_the_defaults_and_the_command_line_over_it():
    half = config_of(["experiment=half_online", "train.sync_every=5"])
    quick = config_of(["experiment=quick"])
    assert (half.train.offline_share, half.train.sync_every) == (0.5, 5)
    assert (quick.steps, quick.name) == (60, "quick")


MISTAKES = {
    "unknown top-level key": (["sede=1"], ["unknown key 'sede'", "did you mean 'seed'?"]),
    "unknown key": (["algo.betta=1"], ["unknown key 'algo.betta'", "did you mean 'algo.beta'?"]),
    "renamed key": (
        ["train.behaviour=told"],
        ["unknown key 'train.behaviour'", "it is 'train.missing_logprobs' now"],
    ),
    "another's key": (["algo=grpo", "algo.beta=1"], ["'algo.beta'", "belongs to", "algo=spo"]),
    "another choice's key": (["engine.colocate=true"], ["engine.colocate", "engine=vllm"]),
    "short for a key": (["train.lr=1"], ["'train.lr'", "did you mean 'algo.learning_rate'?"]),
    "three deep": (["task.reward.hihg=1"], ["did you mean 'task.reward.high'?"]),
    "critic under spo": (["algo=spo", "+algo.critic=separate"], ["algo.critic", "beta"]),
    "unknown choice": (["algo=gpo"], ["algo=gpo", "ppo", "spo"]),
    "wrong type": (["steps=many"], ["steps='many'", "int"]),
    "nested wrong type": (["train.prompts=x"], ["train.prompts", "'x'", "int"]),
    "no section": (["train=3"], ["train=3", "train.KEY=VALUE"]),
    "wrong value": (["algo.loss=l2"], ["algo.loss='l2'", "cross_entropy"]),
    "negative": (["train.prompts=0"], ["train.prompts=0", "at least 1"]),
    "not a number": (["algo.learning_rate=nan"], ["algo.learning_rate=nan", "finite"]),
    "infinite": (["judge.time_factor=inf"], ["judge.time_factor=inf", "finite"]),
    "infinite in a list": (["eval.k=[inf]"], ["eval.k=inf", "int"]),
    "noise below none": (["task.reward.dither=-1"], ["task.reward.dither=-1", "0"]),
    "more than a success": (["task.reward.conciseness=2"], ["task.reward.conciseness=2", "1"]),
    "infinite three deep": (["task.reward.high=inf"], ["task.reward.high=inf", "finite"]),
    "no output folder": (["output_dir="], ["output_dir=''", "not be empty"]),
    "out of the output folder": (["name=../../evil"], ["name='../../evil'", "one folder"]),
    "a hidden folder": (["name=.cache"], ["name='.cache'", "one folder"]),
    "no such core": (["algo.core=algorithms.grpo.GRPQ"], ["algo.core=algorithms.grpo.GRPQ"]),
    "core of no kind": (["algo.core=algorithms.base.Batch"], ["algo.core", "dataclass Config"]),
    "group of one": (["algo=grpo", "train.group_size=1"], ["train.group_size=1", "grpo"]),
    "offline under ppo": (["algo=ppo", "train.offline_share=0.5"], ["train.offline_share", "ppo"]),
    "two staleness": (["train.lag=2", "train.sync_every=3"], ["train.lag=2", "sync_every=1"]),
    "a lag without a ratio": (["algo=rloo", "train.lag=2"], ["train.lag=2", "algo.max_lag=2"]),
    "two steps without a ratio": (["algo=rloo", "train.epochs=2"], ["epochs=2", "max_lag=1"]),
    "part of a group": (["train.minibatches=17"], ["train.minibatches=17", "train.prompts=16"]),
    "no ratio to correct": (["train.correction=truncated"], ["train.correction", "algo=spo"]),
    "bounds of nothing": (["algo=ppo", "train.correction_high=3"], ["correction_high", "masked"]),
    "bounds crossed": (
        ["algo=ppo", "train.correction=masked", "train.correction_low=3"],
        ["train.correction_low=3", "train.correction_high=2"],
    ),
    "part of a response": (["train.offline_share=0.3"], ["train.offline_share=0.3", "0.25"]),
    "replay is part of a response": (["train.replay_share=0.3"], ["replay_share=0.3", "0.25"]),
    "more than a group": (["train.offline_share=0.5", "train.replay_share=0.75"], ["lower one"]),
    "nothing to replay": (["train.replay_share=0.5", "replay.own=false"], ["replay.from_runs"]),
    "no share of a run": (["replay.from_runs=[/x]"], ["replay.from_runs=[/x]", "replay_share=0.5"]),
    "no samples": (["train.replay_share=0.5", "replay.from_runs=[/x]"], ["train.keep_samples"]),
    "twice": (["train.replay_share=0.5", "replay.from_runs=[/x,/x/]"], ["is listed twice"]),
    "too young": (["train.replay_share=0.5", "replay.max_age=0"], ["max_age=0", "1 or more"]),
    "no file": (["train.replay_share=0.5", "replay.files=[/x]"], ["replay.files=[/x]", "no such"]),
    "frozen from nowhere": (["experiment=frozen"], ["replay.frozen=true", "replay.from_runs=["]),
    "frozen and late": (
        ["experiment=frozen", f"replay.from_runs=[{ROOT}]", "train.lag=3"],
        ["replay.frozen=true", "train.lag"],
    ),
    "replay without a ratio": (
        ["algo=rloo", "train.replay_share=0.5"],
        ["train.replay_share=0.5", "replay.max_age=None", "algo.max_lag=200"],
    ),
    "chosen by the test": (["train.keep_best=true"], ["eval.split=test", "eval.split=validation"]),
    "fraction stopped early": (["task.reward.kind=fraction"], ["judge.early_stop=false"]),
    "no k within n": (["eval.samples=3", "eval.k=[5]"], ["eval.k=[5]", "eval.samples=3"]),
    "missing value": (["model=local"], ["model.path"]),
    "not an override": (["algo"], ["'algo'", "key=value"]),
    "a path in two": (["task.path=/a", "b/c"], ["""'task.path="/a b/c"'"""]),
    "odd characters": (["task=taco", "task.path=/a(b)"], ["""'task.path="/a(b)"'"""]),
    "one job of a sweep": (["-m", "algo=spo,ppo", "train.offline_share=0,0.5"], ["ppo"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_anything_starts(mistake, tmp_path, capsys):
    arguments, words = MISTAKES[mistake]
    with pytest.raises(SystemExit) as ended:
        run.check([f"output_dir={tmp_path}/out", *arguments])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert all(word in lines[0] for word in words), lines[0]


def test_a_quoted_path_is_taken_as_it_is(tmp_path):
    assert config_of(["task=taco", 'task.path="/a (b)/c"']).task.path == "/a (b)/c"


def test_a_mistake_shows_before_anything_heavy_is_imported():
    program = """
import sys
import run
for bad in ("algo.beta=-1", "algo=grpo algo.kl=k4", "algo=ppo algo.lam=2", "algo=sft steps=-1"):
    try:
        run.check(bad.split())
    except SystemExit:
        continue
    raise AssertionError(bad)
assert not {"torch", "transformers", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=600)


def test_every_key_of_the_fixed_sections_can_be_overridden():
    config = asdict(config_of([]))
    composed = compose([])
    for section in ("train", "eval", "judge"):
        assert list(composed[section]) == list(config[section])


def test_an_option_that_no_file_lists_is_overridden_without_a_plus():
    files = [CONF / "config.yaml", CONF / "algo" / "grpo.yaml", CONF / "engine" / "auto.yaml"]
    listed = "".join(file.read_text() for file in files)
    assert not any(key in listed for key in ("lag:", "memory_share:"))
    config = config_of(["algo=grpo", "engine=auto", "train.lag=3", "engine.memory_share=0.5"])
    assert (config.train.lag, config.engine.memory_share) == (3, 0.5)


def test_a_mistake_on_the_command_line_leaves_nothing_behind(tmp_path):
    done = call("-m", "algo=spo,ppo", "train.offline_share=0,0.5", f"output_dir={tmp_path}/out")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_right_passes_the_check(tmp_path):
    out = f"output_dir={tmp_path}"
    run.check(["algo=grpo", "seed=3", out])
    run.check(["-m", "algo=spo,ppo,grpo", "seed=0,1,2", out])


SMALL = [
    "steps=1",
    "eval.every=0",
    "eval.samples=2",
    "eval.k=[1,2]",
    "train.prompts=2",
    "train.group_size=2",
    "task.train_problems=4",
    "task.validation_problems=2",
    "task.test_problems=2",
    "sandbox=embedded",
]


def test_a_sweep_ends_with_one_table_and_writes_nowhere_else(tmp_path):
    given = [*SMALL, "algo.learning_rate=1e-4", f"output_dir={tmp_path}/out"]
    done = call("-m", "algo=grpo,spo", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "out" / "mini").iterdir())
    assert [folder.name[:4] for folder in folders] == ["grpo", "spo-"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    lines = done.stdout.splitlines()
    assert [line.split("│")[1].strip() for line in lines[3:5]] == ["algo=grpo", "algo=spo"]
    assert "pass@1" in lines[1]
    assert "pass@2" in lines[1]
    assert all(str(folder) in line for folder, line in zip(folders, lines[3:5], strict=True))
    assert lines[-1] == f"report: make report RUNS={tmp_path}/out/mini"
    assert done.stderr.count("sandbox: embedded") == 2  # once a job


def test_the_same_sweep_again_does_only_what_is_left(tmp_path):
    given = ["-m", "algo=grpo", *SMALL, "steps=2", "train.checkpoint_every=1"]
    given += [f"output_dir={tmp_path}"]
    assert call(*given, "seed=0,1").returncode == 0
    first, second = sorted((tmp_path / "mini").iterdir())
    kept = (first / "run.json").read_bytes()
    info = json.loads((second / "run.json").read_text())
    (second / "run.json").write_text(json.dumps(info | {"status": "running"}))  # it was killed
    shutil.rmtree(second / "checkpoints" / "final")
    again = call(*given, "seed=0,1,2")
    assert again.returncode == 0, again.stderr
    assert f"not run again: {first}" in again.stderr
    assert f"resuming after step 1 in {second}" in again.stderr
    assert (first / "run.json").read_bytes() == kept
    folders = sorted((tmp_path / "mini").iterdir())
    assert [folder.name[:8] for folder in folders] == ["grpo-s0-", "grpo-s1-", "grpo-s2-"]
    infos = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert [info["status"] for info in infos] == ["finished"] * 3
    assert [[at["step"] for at in info["resumed"]] for info in infos] == [[], [1], []]
    for folder in folders:
        assert list(pandas.read_parquet(folder / "metrics.parquet")["step"]) == [1, 2]
    rows = [line.split("│") for line in again.stdout.splitlines() if line.startswith("│")]
    assert all(float(row[3]) >= 0 for row in rows)  # pass@1 of all three

    done = call(f"resume={first}")
    assert (done.returncode, done.stdout.split(",")[0]) == (0, "already finished")
    done = call(f"resume={first}", "seed=5")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: resume={first}: seed=5 (was 0) would be another run")


def test_a_job_that_diverges_does_not_end_the_sweep(tmp_path):
    rates = "algo.learning_rate=1e20,1e-4"
    given = [*SMALL, "steps=3", "train.warmup_steps=0", f"output_dir={tmp_path}/out"]
    done = call("-m", "algo=spo", "algo.q0_samples=2", rates, *given)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row[2].strip() for row in rows] == ["failed", "finished"]
    (failed,) = [line for line in done.stdout.splitlines() if line.startswith("failed:")]
    assert "algo.learning_rate=1e+20: " in failed
    assert "diverged" in failed


def test_ctrl_c_while_importing_is_no_traceback():
    program = f"""
import os, signal, sys, threading
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["run.py", "--cfg", "job"]
import builtins, run
imported = builtins.__import__
def slow(name, *rest):
    if name == "hydra":
        signal.raise_signal(signal.SIGINT)
    return imported(name, *rest)
builtins.__import__ = slow
run.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 130
    assert done.stderr == ""


def test_what_imports_left_is_not_collected_and_what_runs_leave_is(monkeypatch):
    """The first run of a process sets the imports aside, a later one not what a run has left."""
    found = []
    monkeypatch.setattr(
        "experiments.launch.train",
        lambda *_: found.append((gc.isenabled(), gc.get_freeze_count())),
    )
    gc.disable()
    try:
        run.run_one(None)
        run.run_one(None)
    finally:
        gc.enable()
        gc.unfreeze()
    (enabled, frozen), again = found
    assert enabled and frozen > 10_000 and again[0] and again[1] <= frozen


def test_a_full_disk_is_one_line(tmp_path):
    """The weights of the bundled model are larger than this process may make a file."""
    limited = ("bash", "-c", 'ulimit -f 1000; exec "$@"', "-", sys.executable, "run.py")
    done = subprocess.run(
        [*limited, *SMALL, "algo=grpo", f"output_dir={tmp_path}/out"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: the disk is full")
    (folder,) = (tmp_path / "out" / "mini").iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert len(pandas.read_parquet(folder / "evals.parquet")) == 2 * 2 * 2
    assert list((folder / "checkpoints").iterdir()) == []


def test_rows_of_a_public_data_set_go_the_whole_way(tmp_path):
    held = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]})
    program = json.dumps(["a, b = map(int, input().split())\nprint(a + b)"])
    names = [" ".join(f"{w}{i}" for w in ("please", "print", "the", "sum")) for i in range(40)]
    rows = [{"question": f"{name}.", "input_output": held} for name in names]
    rows = [row | {"solutions": program} for row in rows] + [{"question": "x", "input_output": ""}]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    small = "steps=2 eval.every=0 eval.samples=2 eval.k=[1] train.prompts=2 train.group_size=2"
    given = [*small.split(), "task.max_response_tokens=48", "train.offline_share=0.5"]
    given += [
        "model=nano",
        "sandbox=embedded",
        f"output_dir={tmp_path}/out",
        "task.test_problems=2",
    ]
    done = call("algo=spo", "task=taco", f"task.path={file}", *given)
    assert done.returncode == 0, done.stderr
    assert "of 41 rows; left out: input_output is empty 1" in done.stderr
    (folder,) = (tmp_path / "out" / "taco").iterdir()
    facts = json.loads((folder / "run.json").read_text())
    assert facts["task"] == {
        "rows_read": 41,
        "left_out": {"input_output is empty": 1},
        "decontaminated": [],
    }
    metrics = pandas.read_parquet(folder / "metrics.parquet")
    assert list(metrics["offline_share"]) == [0.5, 0.5]


LATER = {
    "no network": (
        ["task=taco", "model=nano"],
        ["task.path=hf://datasets/BAAI/TACO@", "cannot be reached", "hf download", "=FOLDER"],
    ),
    "no such model": (
        ["model.path=/nowhere/model"],
        ["model.path=/nowhere/model", "no such folder"],
    ),
    "no model in the folder": (["model.path={tmp}"], ["model.path", "config.json"]),
    "empty split": (["task.max_prompt_tokens=2"], ["split is empty", "task.max_prompt_tokens=2"]),
    "unwritable": (
        ["output_dir=/proc/nowhere"],
        ["output_dir=/proc/nowhere", "choose a writable folder"],
    ),
    "no problems": (["task.test_problems=0"], ["task.test_problems=0"]),
}


@pytest.mark.parametrize("mistake", LATER)
def test_what_only_shows_later_is_one_line_too(mistake, tmp_path):
    arguments, words = LATER[mistake]
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    small = ("task.train_problems=12", "task.test_problems=4", "sandbox=embedded")
    done = call(*small, f"output_dir={tmp_path}/out", *given)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().split("\n")[-1]
    assert last.startswith("error: ")
    assert all(word in last for word in words), last


def test_a_model_without_chat_template_is_said(tmp_path):
    shutil.copytree(ROOT / "assets" / "nano", tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    settings = tmp_path / "plain" / "tokenizer_config.json"
    kept = {k: v for k, v in json.loads(settings.read_text()).items() if k != "chat_template"}
    settings.write_text(json.dumps(kept))
    arguments = (f"model.path={tmp_path}/plain", "sandbox=embedded", f"output_dir={tmp_path}/out")
    done = call(*arguments)
    assert done.returncode == 2
    assert "no chat template" in done.stderr.strip().split("\n")[-1]
    assert "task.chat=false" in done.stderr
