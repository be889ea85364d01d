"""What is left open is picked by the device; what is given stays."""

import pytest

from algorithms import make
from experiments.config.preflight import VLLM_RELEASE
from experiments.config.resolve_defaults import (
    describe_dropped,
    few_problems_note,
    final_split_warning,
    missing_share_warning,
    no_gpu_warning,
    resolve_defaults,
    setting_warnings,
    summary,
)
from tests.experiments.compose import config


@pytest.mark.parametrize(
    ("device", "prompt", "response", "dtype"),
    [("cpu", 1024, 256, "float32"), ("cuda:1", 2048, 1024, "bfloat16")],
)
def test_lengths_and_dtype_by_device(device, prompt, response, dtype, monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.config.resolve_defaults.CPU_FACTS", tmp_path / "none")
    picked = resolve_defaults(config("task=taco"), device)
    assert (picked.task.max_prompt_tokens, picked.task.max_response_tokens) == (prompt, response)
    assert picked.model.dtype == dtype
    line = summary(picked, device)
    assert "\n" not in line
    for word in (device, "qwen25_coder_0b5", dtype, "engine=hf", str(prompt), str(response)):
        assert word in line


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("avx2 avx512f avx512_bf16", "bfloat16"), ("amx_bf16", "bfloat16"), ("avx512f", "float32")],
)
def test_a_cpu_computes_in_bfloat16_if_it_has_instructions_for_it(
    flags, dtype, monkeypatch, tmp_path
):
    facts = tmp_path / "cpuinfo"
    facts.write_text(f"processor\t: 0\nbugs\t\t: amx_bf16\nflags\t\t: {flags}\n")
    monkeypatch.setattr("experiments.config.resolve_defaults.CPU_FACTS", facts)
    assert resolve_defaults(config("task=taco"), "cpu").model.dtype == dtype


def test_the_line_of_a_run_says_how_stale_its_responses_are():
    assert "train." not in summary(config("task=mini"), "cpu")
    stale = summary(config("algo=grpo", "train.lag=3", "train.correction=truncated"), "cpu")
    assert stale.endswith("; train.lag=3, train.correction=truncated")


def test_the_engine_is_vllm_on_a_gpu_that_has_it(monkeypatch):
    asked = config("task=taco", "engine=auto")
    assert resolve_defaults(asked, "cpu").engine.name == "hf"
    for version, engine in {None: "hf", "0.1.0": "hf", VLLM_RELEASE: "vllm"}.items():
        monkeypatch.setattr(
            "experiments.config.resolve_defaults.vllm_version", lambda version=version: version
        )
        assert resolve_defaults(asked, "cuda:0").engine.name == engine


def test_what_is_given_stays():
    given = config("task=taco", "task.max_response_tokens=77", "model=nano")
    picked = resolve_defaults(given, "cuda:0")
    assert picked.task.max_response_tokens == 77 and picked.model.dtype == "float32"
    mini = config("task=mini")
    assert resolve_defaults(mini, "cuda:0") == mini


def test_no_k_stays_above_the_samples():
    given = config("eval.samples=5", "eval.k=[1,5,10,20]")
    picked = resolve_defaults(given, "cpu")
    assert picked.eval.k == [1, 5]
    assert (
        describe_dropped(given, picked)
        == "left out: pass@10, pass@20; more than eval.samples=5 samples are needed"
    )
    assert describe_dropped(picked, picked) is None


def test_a_pretrained_model_is_trained_gently():
    for algorithm in ("spo", "ppo", "grpo"):
        rate = config("task=taco", f"algo={algorithm}").algo.learning_rate
        assert rate == 1e-6 < config(f"algo={algorithm}").algo.learning_rate
    assert config("task=taco", "algo=ppo").algo.critic_rate == 1e-5
    assert config("algo=ppo", "algo.learning_rate=1e-4").algo.critic_rate == 1e-4
    assert config("algo=ppo", "algo.critic_learning_rate=1e-6").algo.critic_rate == 1e-6


def test_named_gpus_that_torch_does_not_find_are_said(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    assert "CUDA_VISIBLE_DEVICES=9, but" in no_gpu_warning(config("algo=spo"), "cpu")
    assert no_gpu_warning(config("algo=spo"), "cuda") is None
    assert no_gpu_warning(config("algo=spo", "model.device=cpu"), "cpu") is None
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert no_gpu_warning(config("algo=spo"), "cpu") is None


def test_what_an_objective_is_made_to_mix_in_is_missed():
    for name, share in (("luffy", "offline"), ("sft", "offline"), ("repo", "replay")):
        needs = make(name).needs
        assert f"train.{share}_share=0" in missing_share_warning(config(f"algo={name}"), needs, 64)
        given = config(f"algo={name}", f"train.{share}_share=0.5")
        assert missing_share_warning(given, needs, 64) is None
    assert missing_share_warning(config("algo=spo"), make("spo").needs, 64) is None


def test_a_run_whose_policy_never_learns_is_said_to_be_one():
    told = [summary(config("algo=vapo", f"steps={n}"), "cpu") for n in (0, 50, 51)]
    assert ["only the critic is trained" in line for line in told] == [False, True, False]


def test_a_replay_that_would_begin_after_its_end_is_said():
    given = ("algo=remix", "train.replay_share=0.5", "train.prompts=8", "steps=80")
    needs = make("remix").needs  # replays up to batch 50
    assert missing_share_warning(config(*given), needs, 8 * 49) is None
    said = missing_share_warning(config(*given), needs, 8 * 50)
    assert (
        "none of the 400 problems returns before batch 51, and replay ends after batch 50," in said
    )
    repo = config("algo=repo", *given[1:], "steps=20")
    assert "before batch 51, so nothing" in missing_share_warning(repo, make("repo").needs, 8 * 50)


def test_the_test_split_is_warned_of_unless_a_study_evaluates_at_its_end():
    for study in (None, "study-s"):
        assert "eval.split=choose" in final_split_warning(config("eval.split=test"), study)
        for given in (["eval.split=tune"], []):
            assert final_split_warning(config(*given), study) is None
    final = config("eval.split=test", "eval.final=true")
    assert final_split_warning(final, "study-s") is None
    assert "set by hand" in final_split_warning(final, None)


def test_few_problems_of_an_evaluation_are_said_with_what_gives_more():
    assert few_problems_note(config("task=mini"), 20) is None
    said = few_problems_note(config("task=mini"), 19)
    assert said is not None and said.startswith("NOTE: eval.split=choose has 19 problems, ")
    assert said.endswith("task.choose_problems=N makes more")
    rows = few_problems_note(config("task=taco", "eval.split=test"), 1)
    assert (
        rows is not None
        and "has 1 problem," in rows
        and rows.endswith("more rows, or a folder with a file for each split, give more")
    )


def test_programs_of_the_data_set_at_another_temperature_than_1_are_warned_of():
    half = ["train.offline_share=0.5", "train.temperature=0.5"]
    [line] = setting_warnings(config("experiment=half_online", *half))
    assert "train.temperature=0.5" in line and "train.temperature=1" in line
    for given in (["train.offline_share=0.5"], ["train.temperature=0.5"]):
        assert setting_warnings(config(*given)) == []


def test_an_evaluation_on_training_problems_is_warned_of_in_a_run_that_trains():
    [line] = setting_warnings(config("eval.split=train", "steps=1"))
    assert line.startswith("eval.split=train: ") and "eval.split=choose" in line
    assert setting_warnings(config("eval.split=train", "steps=0")) == []


def test_only_an_evaluation_that_says_little_is_warned_of():
    for given in (["eval.temperature=0", "eval.samples=1"], ["task.max_response_tokens=16"], []):
        assert setting_warnings(config(*given)) == []
    both = config("eval.temperature=0", "task.max_response_tokens=15")
    assert len(setting_warnings(both)) == 2
