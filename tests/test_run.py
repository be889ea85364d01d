"""The command line: help, checks before anything heavy, and one line for every mistake."""

import os
import re
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
import yaml
from envs.command_line.field_docs import field_docs
from omegaconf import OmegaConf

import algorithms
import run
from experiments.config.composition import CONF, compose, config_of, leaves
from experiments.config.help import help_text
from experiments.config.schema import plain_values
from experiments.errors import UserError
from tests.command_line import ROOT, call


def test_help_is_in_our_words_and_quick():
    begin = time.monotonic()
    done = call("--help")
    assert done.returncode == 0
    algorithms = done.stdout.split("== algo=NAME")[1].split("==")[1].splitlines()
    assert {"grpo", "ppo", "sft", "spo"} <= {line.split()[0] for line in algorithms if line}
    assert "Soft Policy Optimization" in done.stdout
    assert "jobs=N|auto" in done.stdout and "again=never|changed|always" in done.stdout
    assert time.monotonic() - begin < 20  # about 1 s alone; CI machines are loaded


def test_help_shows_the_keys_of_the_chosen_algorithm_and_engine():
    text = help_text(["algo=ppo", "engine=vllm", "train.prompts=7"])
    assert "algo.critic_warmup=0 " in text and "engine.colocate=" in text
    assert "train.prompts=7 " in text  # what this command line would take
    assert "algo.q0" not in text and "engine.colocate" not in help_text([])
    with pytest.raises(UserError, match="algo=ppoo: no such choice; did you mean 'ppo'"):
        help_text(["algo=ppoo"])


def test_every_choice_and_every_key_of_the_help_has_a_sentence():
    choices = ["task=own", "engine=vllm", "runtime=ray", "logger=wandb"]
    listed = []
    for line in help_text(choices).partition("== algo=NAME")[2].splitlines():
        if line.startswith("  "):
            head, _, sentence = line.strip().partition("  ")
            assert re.sub(r"\[[^\]]*\]$", "", sentence).strip(), head
            listed.append(head.partition("=")[0])
    assert set(leaves(plain_values(compose(choices)))) <= set(listed)


@pytest.mark.parametrize("algo", algorithms.names())
def test_every_option_of_an_algorithm_has_a_sentence(algo):
    docs = field_docs(algorithms.load(algo).Config)
    assert [doc.key for doc in docs if not doc.sentence] == []


def test_the_version_is_ours(call_here):
    done = call_here("--version")
    assert re.fullmatch(r"spo-bench \S+ commit \S+\n", done.stdout)


def test_a_mistake_shows_before_torch_and_pandas_are_imported():
    script = """
import runpy, sys
sys.argv = ["run.py", "algo.beta=-1"]
try:
    runpy.run_path("run.py", run_name="__main__")
except SystemExit as error:
    print(error.code, *{"torch", "transformers", "pandas", "vllm"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", "error: algo.beta=-1; it must be above 0\n")


def test_cfg_job_is_checked_and_resolved(call_here):
    wrong = call_here("--cfg", "job", "algo.beta=-1")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: algo.beta=-1; it must be above 0\n"
    right = call_here("--cfg=job", "task=mini_long", "model=nano_5m")
    assert yaml.safe_load(right.stdout)["name"] == "mini_long"  # no ${task.name}
    part = call_here("-c", "job", "--package", "algo", "algo.beta=0.3")
    assert yaml.safe_load(part.stdout)["beta"] == 0.3
    values = {"algo.name": "spo", "task.min_rating": None, "train.keep_best": False}
    for key, value in values.items():
        assert yaml.safe_load(call_here("--cfg", "job", "-p", key).stdout) == value
    nothing = call_here("-c", "job", "--package", "alga")
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1)


def test_cfg_job_of_a_sweep_is_each_jobs_under_its_overrides(call_here):
    done = call_here("-m", "--cfg", "job", "algo=spo,ppo", "seed=1")
    first, second = yaml.safe_load_all(done.stdout)
    assert (first["algo"]["name"], second["algo"]["name"]) == ("spo", "ppo")
    heads = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert heads == ["# algo=spo seed=1", "# algo=ppo seed=1"]
    wrong = call_here("-m", "--cfg", "job", "algo=spo,ppo", "algo.beta=1")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_cfg_job_of_a_resumed_run_is_its_own(call_here, tmp_path):
    recorded = asdict(config_of(["algo=grpo", "steps=7"]))
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(recorded))
    (tmp_path / "run.json").write_text("{}")
    done = call_here("--cfg", "job", f"resume={tmp_path}", "steps=9")
    printed = yaml.safe_load(done.stdout)
    assert (printed["algo"]["name"], printed["steps"]) == ("grpo", 9)
    wrong = call_here("--cfg", "job", f"resume={tmp_path}", "seed=9")
    assert wrong.returncode == 2 and "would be another run" in wrong.stderr


def test_cfg_job_of_a_package_for_another_machine_is_a_warning(call_here, monkeypatch):
    monkeypatch.setattr("experiments.config.preflight.vllm_version", lambda: None)
    done = call_here("-m", "--cfg", "job", "engine=vllm", "seed=0,1")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith("WARNING: engine.name=vllm: vLLM is not installed")
    assert done.stdout.count("name: vllm") == 2
    with pytest.raises(UserError, match="vLLM is not installed"):  # of a run it is a mistake
        config_of(["engine=vllm"])


def test_other_kinds_of_cfg_are_hydras(call_here):
    assert "output_subdir: null" in call_here("--cfg", "hydra").stdout


def test_a_reader_that_has_gone_is_no_error():
    for arguments in (["run.py", "--help"], ["run.py", "--cfg", "hydra"]):
        gone, end = os.pipe()
        os.close(gone)
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, stdout=end, stderr=subprocess.PIPE, timeout=600
        )
        os.close(end)
        assert (done.returncode, done.stderr) == (141, b"")


def test_cfg_prints_the_composed_configuration(call_here):
    done = call_here("--cfg", "job", "algo=grpo", "train.group_size=4")
    assert "zero_variance: keep" in done.stdout
    assert "group_size: 4" in done.stdout


def test_an_experiment_wins_over_the_defaults_and_the_command_line_over_it():
    half = config_of(["experiment=half_online", "train.sync_every=5"])
    quick = config_of(["experiment=quick"])
    assert (half.train.offline_share, half.train.sync_every) == (0.5, 5)
    assert (quick.steps, quick.name) == (60, "quick")


MISTAKES = {
    "unknown top-level key": (["sede=1"], ["unknown key 'sede'", "did you mean 'seed'?"]),
    "three deep": (["task.reward.hihg=1"], ["did you mean 'task.reward.high'?"]),
    "critic under spo": (["algo=spo", "+algo.critic=separate"], ["algo.critic", "beta"]),
    "nested wrong type": (["train.prompts=x"], ["train.prompts", "'x'", "int"]),
    "no section": (["train=3"], ["train=3", "train.KEY=VALUE"]),
    "wrong value": (["algo.loss=l2"], ["algo.loss='l2'", "cross_entropy"]),
    "not a number": (["algo.learning_rate=nan"], ["algo.learning_rate=nan", "finite"]),
    "infinite": (["judge.time_factor=inf"], ["judge.time_factor=inf", "finite"]),
    "infinite in a list": (["eval.k=[inf]"], ["eval.k=inf", "int"]),
    "noise below none": (["task.reward.dither=-1"], ["task.reward.dither=-1", "0"]),
    "more than a success": (["task.reward.conciseness=2"], ["task.reward.conciseness=2", "1"]),
    "infinite three deep": (["task.reward.high=inf"], ["task.reward.high=inf", "finite"]),
    "no output folder": (["output_dir="], ["output_dir=''", "not be empty"]),
    "a hidden folder": (["name=.cache"], ["name='.cache'", "one folder"]),
    "no such core": (["algo.core=algorithms.grpo.GRPQ"], ["algo.core=algorithms.grpo.GRPQ"]),
    "core of no kind": (["algo.core=algorithms.base.Batch"], ["algo.core", "dataclass Config"]),
    "a warm-up of no critic": (
        ["algo=vapo", "algo.critic=none"],
        ["algo.critic=none", "algo.critic_warmup=50", "algo.critic_warmup=0"],
    ),
    "the rate of no critic": (
        ["algo=ppo", "algo.critic=none", "algo.critic_learning_rate=1e-3"],
        ["critic=none", "critic_learning_rate=0.001", "critic=separate"],
    ),
    "offline under ppo": (["algo=ppo", "train.offline_share=0.5"], ["train.offline_share", "ppo"]),
    "two staleness": (["train.lag=2", "train.sync_every=3"], ["train.lag=2", "sync_every=1"]),
    "a lag without a ratio": (["algo=rloo", "train.lag=2"], ["train.lag=2", "algo.max_lag=2"]),
    "two steps without a ratio": (["algo=rloo", "train.epochs=2"], ["epochs=2", "max_lag=1"]),
    "two bounds of the gradient": (
        ["train.clip_quantile=0.9", "train.max_grad_norm=2"],
        ["train.clip_quantile=0.9", "train.max_grad_norm=2", "leave", "at 1"],
    ),
    "a quantile and no bound": (
        ["train.clip_quantile=0.9", "train.max_grad_norm=null"],
        ["train.clip_quantile=0.9", "train.max_grad_norm=null"],
    ),
    "no quantile": (["train.clip_quantile=1"], ["train.clip_quantile", "1"]),
    "a moving reference and values of the first": (
        ["train.reference_every=5", "algo=spo", "algo.q0=monte_carlo"],
        ["train.reference_every=5", "algo=spo", "algo.q0=monte_carlo", "algo.q0=group"],
    ),
    "a moving reference and values of the first, always": (
        ["train.reference_every=5", "algo=astar_po"],
        ["train.reference_every=5", "algo=astar_po", "initial model", "use null"],
    ),
    "a moving reference of no KL": (
        ["train.reference_every=5", "algo=grpo", "algo.kl_coef=0"],
        ["train.reference_every=5", "algo=grpo", "algo.kl_coef=0", "train.reference_every=null"],
    ),
    "a moving reference that is not read": (
        ["train.reference_every=5", "algo=sft"],
        ["train.reference_every=5", "algo=sft", "train.reference_every=null"],
    ),
    "two moving references": (
        ["train.reference_every=5", "algo=remix", "train.replay_share=0.5"],
        ["train.reference_every=5", "algo=remix", "50 batches", "algo.reincarnate_at=null"],
    ),
    "a moving reference for lost log-probs": (
        ["train.reference_every=5", "algo=ppo", "train.missing_logprobs=reference"],
        ["train.reference_every=5", "train.missing_logprobs=reference", "=recomputed"],
    ),
    "a reference of no batch": (["train.reference_every=0"], ["reference_every=0", "at least 1"]),
    "part of a group": (["train.minibatches=17"], ["train.minibatches=17", "train.prompts=16"]),
    "no ratio to correct": (["train.correction=truncated"], ["train.correction", "algo=spo"]),
    "bounds of nothing": (["algo=ppo", "train.correction_high=3"], ["correction_high", "masked"]),
    "bounds crossed": (
        ["algo=ppo", "train.correction=masked", "train.correction_low=3"],
        ["train.correction_low=3", "train.correction_high=2"],
    ),
    "replay is part of a response": (["train.replay_share=0.3"], ["replay_share=0.3", "0.25"]),
    "more than a group": (["train.offline_share=0.5", "train.replay_share=0.75"], ["lower one"]),
    "nothing to replay": (["train.replay_share=0.5", "replay.own=false"], ["replay.from_runs"]),
    "no share of a run": (["replay.from_runs=[/x]"], ["replay.from_runs=[/x]", "replay_share=0.5"]),
    "no samples": (["train.replay_share=0.5", "replay.from_runs=[/x]"], ["train.keep_samples"]),
    "twice": (["train.replay_share=0.5", "replay.from_runs=[/x,/x/]"], ["is listed twice"]),
    "too young": (["train.replay_share=0.5", "replay.max_age=0"], ["max_age=0", "1 or more"]),
    "too young at a lag": (
        ["train.replay_share=0.5", "train.lag=3", "replay.max_age=3"],
        ["max_age=3", "train.lag=3", "4 or more"],
    ),
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
    "not the final split": (["eval.final=true"], ["eval.final=true with eval.split=choose"]),
    "a size's old name": (["task.validation_problems=9"], ["it is now 'task.tune_problems'"]),
    "sft and a penalty": (["algo=sft", "task.reward.overlong=[48,64]"], ["algo=sft", "use null"]),
    "fraction stopped early": (["task.reward.kind=fraction"], ["judge.early_stop=false"]),
    "no k within n": (["eval.samples=3", "eval.k=[5]"], ["eval.k=[5]", "eval.samples=3"]),
    "a sweep's key": (["again=changed"], ["again=", "add -m"]),
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


def test_a_mistake_on_the_command_line_leaves_nothing_behind(tmp_path, call_here):
    given = ["-m", "algo=spo,ppo", "train.offline_share=0,0.5", f"output_dir={tmp_path}/out"]
    done = call_here(*given)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_right_passes_the_check(tmp_path):
    out = f"output_dir={tmp_path}"
    run.check(["algo=grpo", "seed=3", out])
    run.check(["-m", "algo=spo,ppo,grpo", "seed=0,1,2", out])


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
