"""RoPE that changes with the length: exact up to the length of pretraining, refused beyond it."""

from dataclasses import replace

import pytest
import torch

from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.errors import UserError
from experiments.learner.forward import Tokens, score
from experiments.policy import loading
from experiments.policy.length_check import check_lengths, length_warning
from experiments.policy.policy import Policy
from experiments.trainer import train
from tests.experiments.compose import config
from tests.experiments.kinds import MIXED, SLIDING, model_of, plain_logp

LIMIT = 16
PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12]]  # 6 tokens at most
FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
ORIGINAL = {"original_max_position_embeddings": LIMIT}
LONG = {"max_position_embeddings": 8 * LIMIT}


def rope(kind, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, "factor": 8.0, **parameters}}


CHANGING = {
    "dynamic": ("llama", rope("dynamic") | {"max_position_embeddings": LIMIT}),
    "longrope": ("phi3", rope("longrope", **FACTORS) | ORIGINAL | LONG),
}
CONSTANT = {
    "default": ("llama", {"max_position_embeddings": LIMIT}),
    "linear": ("llama", rope("linear") | {"max_position_embeddings": LIMIT}),
    "yarn": ("llama", rope("yarn", **ORIGINAL) | LONG),
    "llama3": ("llama", rope("llama3", low_freq_factor=1, high_freq_factor=4, **ORIGINAL) | LONG),
    "learned": ("gpt2", {}),
}
ALL = CHANGING | CONSTANT


def run_of(prompt, response):
    chosen = config("model=nano", f"task.max_prompt_tokens={prompt}")
    return replace(chosen, task=replace(chosen.task, max_response_tokens=response))


def off(case, steps):
    """The largest difference to plain forward passes, of the engine's and the learner's logps."""
    kind, options = ALL[case]
    model = model_of(kind, **options)
    engine = HFEngine(Policy(model), {1}, 0, 64)
    groups = engine.generate(Request(PROMPTS, [range(4)] * 3, Sampling(steps)))
    rows = [(i, completion) for i, group in enumerate(groups) for completion in group]
    given = [i for i, _ in rows], [completion.tokens for _, completion in rows]
    tokens = Tokens.pack(PROMPTS, *given, 0, torch.device("cpu"))
    differences = []
    with torch.no_grad():
        learner = score(Policy(model), tokens, 1.0).logp
        for row, (i, completion) in enumerate(rows):
            plain = plain_logp(model, PROMPTS[i], completion.tokens)
            differences.append((torch.tensor(completion.logps) - plain).abs().max())
            differences.append((learner[row, : len(plain)] - plain).abs().max())
    return max(differences)


@pytest.mark.parametrize("case", CHANGING)
def test_it_is_exact_up_to_the_original_length_and_wrong_beyond(case):
    assert off(case, LIMIT - 6) < 1e-4
    assert off(case, 2 * LIMIT) > 0.1


@pytest.mark.parametrize("case", CONSTANT)
def test_other_positions_are_exact_at_any_length(case):
    assert off(case, 2 * LIMIT) < 1e-4


@pytest.mark.parametrize("case", ALL)
def test_longer_sequences_are_refused_where_they_would_be_wrong(case):
    kind, options = ALL[case]
    model_config = model_of(kind, **options).config
    check_lengths(model_config, run_of(6, LIMIT - 6))
    if case in CONSTANT:
        check_lengths(model_config, run_of(6, LIMIT - 5))
        return
    with pytest.raises(UserError) as raised:
        check_lengths(model_config, run_of(6, LIMIT - 5))
    assert str(raised.value) == (
        f"model.path=assets/nano: its RoPE ({case}) changes with the length beyond 16 tokens, so "
        "log-probs would depend on the batch; task.max_prompt_tokens=6 and "
        "task.max_response_tokens=11 allow 17: lower them to at most 16 together"
    )


def test_every_kind_of_layer_has_its_own_limit():
    model_config = model_of("gemma3_text", **SLIDING["gemma3_text"] | {"layer_types": MIXED}).config
    check_lengths(model_config, run_of(6, LIMIT))
    model_config.rope_parameters["full_attention"] |= {"rope_type": "dynamic", "factor": 8.0}
    model_config.max_position_embeddings = LIMIT
    with pytest.raises(UserError, match="beyond 16 tokens"):
        check_lengths(model_config, run_of(6, LIMIT))


def test_layers_with_another_state_are_refused():
    model_config = model_of("lfm2", layer_types=["conv", "conv", "full_attention"]).config
    with pytest.raises(UserError, match="its cache has layers of LinearAttentionLayer; take a"):
        check_lengths(model_config, run_of(6, 6))


def test_a_run_ends_before_it_loads_the_weights(tmp_path, monkeypatch):
    _, tokenizer = loading.load(config("model=nano").model)
    tokenizer.save_pretrained(tmp_path)
    kind, options = CHANGING["longrope"]
    model_of(kind, **options).save_pretrained(tmp_path)
    monkeypatch.setattr(loading, "load_policy", None)
    given = ["model=local", f"model.path={tmp_path}", f"output_dir={tmp_path}"]
    outcome = train(config("sandbox=embedded", *given))
    assert (outcome.status, outcome.expected) == ("failed", True)
    assert outcome.error.startswith(f"model.path={tmp_path}: its RoPE (longrope) changes")


def test_a_model_with_an_embedding_for_each_position_has_no_further_ones():
    of_model = model_of("gpt2", n_positions=64).config
    check_lengths(of_model, run_of(40, 24))
    with pytest.raises(UserError, match=r"it has 64 positions; .* allow 65 tokens"):
        check_lengths(of_model, run_of(40, 25))


def saved(folder, kind, **options):
    model_of(kind, **options).config.save_pretrained(folder)
    return f"model.path={folder}"


def test_sequences_beyond_what_a_model_was_made_for_are_said_once_with_their_keys(tmp_path):
    given = ["model=local", saved(tmp_path, "llama", max_position_embeddings=128)]
    lengths = ["task.max_prompt_tokens=100", "task.max_response_tokens=29"]
    assert length_warning(config(*given, "task.max_prompt_tokens=99", lengths[1])) is None
    assert length_warning(config(*given, *lengths)) == (
        f"model.path={tmp_path}: it was made for at most 128 tokens (max_position_embeddings of "
        "its config.json); task.max_prompt_tokens=100 and task.max_response_tokens=29 allow 129, "
        "and it may write nonsense beyond 128: lower them to at most 128 together"
    )
    turns = ["task.max_prompt_tokens=20", "eval.turns=3", "task.max_observation_tokens=40"]
    line = length_warning(config(*given, *turns, "task.max_response_tokens=10"))
    assert "in 3 turns, with task.max_observation_tokens=40, allow 130" in line


def test_limits_that_the_device_decides_count_too():
    own = ["task=own", "task.path=rows.jsonl", "model=nano"]
    fields = [f"task.fields.{key}=x" for key in ("statement", "inputs", "outputs")]
    assert "allow 1280," in length_warning(config(*own, *fields, "model.device=cpu"))
    assert "allow 3072," in length_warning(config(*own, *fields, "model.device=cuda"))


@pytest.mark.parametrize("case", ["linear", "yarn", "learned"])
def test_stretched_positions_are_within_reach_and_learned_ones_are_refused_anyway(case, tmp_path):
    kind, options = ALL[case]
    path = saved(tmp_path, kind, **options)
    lengths = [f"task.max_prompt_tokens={6 * LIMIT}", f"task.max_response_tokens={2 * LIMIT}"]
    assert length_warning(config("model=local", path, *lengths)) is None


@pytest.mark.parametrize("task", ["mini", "mini_long", "mini_feedback", "sums"])
def test_a_bundled_task_fits_its_model(task):
    assert length_warning(config(f"task={task}")) is None
