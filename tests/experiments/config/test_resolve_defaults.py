"""What is left open is picked by the device; what is given stays."""

import pytest

from algorithms import make
from experiments.config.dependencies import RELEASE
from experiments.config.resolve_defaults import dropped, in_a_line, pick, without_its_share
from tests.experiments.compose import config


@pytest.mark.parametrize(
    ("device", "prompt", "response", "dtype"),
    [("cpu", 1024, 256, "float32"), ("cuda:1", 2048, 1024, "bfloat16")],
)
def test_lengths_and_dtype_by_device(device, prompt, response, dtype):
    picked = pick(config("task=taco"), device)
    assert (picked.task.max_prompt_tokens, picked.task.max_response_tokens) == (prompt, response)
    assert picked.model.dtype == dtype
    line = in_a_line(picked, device)
    assert "\n" not in line
    for word in (device, "qwen25_coder_0b5", dtype, "engine=hf", str(prompt), str(response)):
        assert word in line


def test_the_engine_is_vllm_on_a_gpu_that_has_it(monkeypatch):
    asked = config("task=taco", "engine=auto")
    assert pick(asked, "cpu").engine.name == "hf"
    for version, engine in {None: "hf", "0.1.0": "hf", RELEASE: "vllm"}.items():
        monkeypatch.setattr(
            "experiments.config.resolve_defaults.installed", lambda version=version: version
        )
        assert pick(asked, "cuda:0").engine.name == engine


def test_what_is_given_stays():
    given = config("task=taco", "task.max_response_tokens=77", "model=nano")
    picked = pick(given, "cuda:0")
    assert picked.task.max_response_tokens == 77 and picked.model.dtype == "float32"
    mini = config("task=mini")
    assert pick(mini, "cuda:0") == mini


def test_no_k_stays_above_the_samples():
    given = config("eval.samples=5", "eval.k=[1,5,10,20]")
    picked = pick(given, "cpu")
    assert picked.eval.k == [1, 5]
    assert dropped(given, picked) == "left out: pass@10, pass@20, which eval.samples=5 cannot tell"
    assert dropped(picked, picked) is None


def test_a_pretrained_model_is_trained_gently():
    for algorithm in ("spo", "ppo", "grpo"):
        rate = config("task=taco", f"algo={algorithm}").algo.learning_rate
        assert rate == 1e-6 < config(f"algo={algorithm}").algo.learning_rate
    assert config("task=taco", "algo=ppo").algo.critic_rate == 1e-5
    assert config("algo=ppo", "algo.learning_rate=1e-4").algo.critic_rate == 1e-4
    assert config("algo=ppo", "algo.critic_learning_rate=1e-6").algo.critic_rate == 1e-6


def test_what_an_objective_is_made_to_mix_in_is_missed():
    for name, share in (("luffy", "offline"), ("sft", "offline"), ("repo", "replay")):
        needs = make(name).needs
        assert f"train.{share}_share=0" in without_its_share(config(f"algo={name}"), needs, 64)
        given = config(f"algo={name}", f"train.{share}_share=0.5")
        assert without_its_share(given, needs, 64) is None
    assert without_its_share(config("algo=spo"), make("spo").needs, 64) is None


def test_a_run_whose_policy_never_learns_is_said_to_be_one():
    told = [in_a_line(config("algo=vapo", f"steps={n}"), "cpu") for n in (0, 50, 51)]
    assert ["critic learns alone in all" in line for line in told] == [False, True, False]


def test_a_replay_that_would_begin_after_its_end_is_said():
    given = ("algo=remix", "train.replay_share=0.5", "train.prompts=8", "steps=80")
    needs = make("remix").needs  # replays up to batch 50
    assert without_its_share(config(*given), needs, 8 * 49) is None
    said = without_its_share(config(*given), needs, 8 * 50)
    assert "no problem of 400 comes again before batch 51 and the last that replays is" in said
    assert "number 50" in said
    repo = config("algo=repo", *given[1:], "steps=20")
    assert "before batch 51, so that" in without_its_share(repo, make("repo").needs, 8 * 50)
