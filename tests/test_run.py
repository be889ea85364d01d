"""The command line of run.py: help, checks before anything heavy, one line for every mistake."""

import os
import re
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
import yaml
from omegaconf import OmegaConf

from experiments.config.composition import config_of
from tests.command_line import ROOT


def test_help_is_quick_and_shows_the_keys_of_the_chosen_algorithm(call_here):
    begin = time.monotonic()
    done = call_here("--help", "algo=ppo", "train.prompts=7")
    assert done.returncode == 0 and time.monotonic() - begin < 20  # a second on an idle machine
    algorithms = done.stdout.split("== algo=NAME")[1].split("==")[1].splitlines()
    assert {"grpo", "ppo", "sft", "spo"} <= {line.split()[0] for line in algorithms if line}
    assert "algo.critic_warmup=0 " in done.stdout and "train.prompts=7 " in done.stdout
    assert "algo.q0" not in done.stdout


def test_the_version_is_ours(call_here):
    assert re.fullmatch(r"spo-bench \S+ commit \S+\n", call_here("--version").stdout)


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
    assert done.stdout == "2\n" and done.stderr.startswith("error: algo.beta=-1; ")


def test_cfg_job_is_checked_and_resolved(call_here, tmp_path):
    wrong = call_here("--cfg", "job", "algo.beta=-1")
    assert (wrong.returncode, wrong.stdout) == (2, "") and "algo.beta=-1" in wrong.stderr
    right = call_here("--cfg=job", "task=mini_long", "model=nano_5m")
    assert yaml.safe_load(right.stdout)["name"] == "mini_long"  # no ${task.name}
    sweep = call_here("-m", "--cfg", "job", "algo=spo,ppo", "seed=1")
    names = [each["algo"]["name"] for each in yaml.safe_load_all(sweep.stdout)]
    assert names == ["spo", "ppo"]
    recorded = asdict(config_of(["algo=grpo", "steps=7"]))
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(recorded))
    (tmp_path / "run.json").write_text("{}")
    resumed = yaml.safe_load(call_here("--cfg", "job", f"resume={tmp_path}", "steps=9").stdout)
    assert (resumed["algo"]["name"], resumed["steps"]) == ("grpo", 9)
    other = call_here("--cfg", "job", f"resume={tmp_path}", "seed=9")
    assert other.returncode == 2 and "seed=9" in other.stderr


def test_a_reader_that_has_gone_is_no_error():
    gone, end = os.pipe()
    os.close(gone)
    done = subprocess.run(
        [sys.executable, "run.py", "--help"], cwd=ROOT, stdout=end, stderr=subprocess.PIPE
    )
    os.close(end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_experiment_wins_over_the_defaults_and_the_command_line_over_it():
    half = config_of(["experiment=half_online", "train.sync_every=5"])
    assert (half.train.offline_share, half.train.sync_every) == (0.5, 5)
    assert config_of(["task=taco", 'task.path="/a (b)/c"']).task.path == "/a (b)/c"


MISTAKES = yaml.safe_load((ROOT / "tests" / "mistakes.yaml").read_text("utf-8"))


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_before_anything_starts(arguments, tmp_path, call_here):
    given = arguments.split()
    if not any(word.startswith(("output_dir", "resume")) for word in given):
        given.append(f"output_dir={tmp_path}/out")
    done = call_here(*given)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("error: ")
    assert all(word in done.stderr for word in MISTAKES[arguments].split()), done.stderr
    assert not (tmp_path / "out").exists()


def test_several_ranks_take_no_sweep(monkeypatch, call_here):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = call_here("-m", "runtime=torchrun", "seed=0,1")
    assert done.returncode == 2 and "torchrun with -m" in done.stderr
    done = call_here("seed=0")
    assert done.returncode == 2 and "add runtime=torchrun" in done.stderr


def test_ctrl_c_while_importing_is_no_traceback():
    program = f"""
import builtins, signal, sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["run.py", "--cfg", "job"]
import run
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
    assert (done.returncode, done.stderr) == (130, "")
