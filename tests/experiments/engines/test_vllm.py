"""The real vLLM against our loop and the learner: tokens, log-probs, distributions, syncs."""

import pytest
import torch

from experiments import engine_check
from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.vllm import Host, VLLMEngine
from experiments.learner.batching import Tokens
from experiments.learner.forward import score
from experiments.policy import loading
from experiments.policy.policy import Policy, frozen_copy
from tests.compose import engine_config, model_config, run_config
from tests.experiments.compose import config

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed"
    ),
]


def config_of(*overrides):
    return config("engine=vllm", *overrides)


@pytest.fixture(scope="module")
def host():
    policy, _ = loading.load(model_config())
    return Host(config_of(), policy)


@pytest.fixture
def policy():
    """A policy that a test may train."""
    return loading.load(model_config())[0]


@pytest.fixture(scope="module")
def prompts():
    """200 prompts of the training split, in the model's tokens."""
    from envs.tasks import open_task
    from experiments.rollout.prompts import encode_prompts

    _, tokenizer = loading.load(model_config())
    config = config_of("task.train_problems=200").task
    task = open_task(config)
    return [p.tokens for p in encode_prompts(task.train, task, tokenizer, config, {})[0]]


def ends(policy):
    return {policy.model.generation_config.eos_token_id}


def flat(groups):
    return [completion for group in groups for completion in group]


def differences(policy, prompts, completions, temperature=1.0):
    """|engine's − learner's log-prob| of every token, one completion for each prompt."""
    rows, responses = range(len(prompts)), [c.tokens for c in completions]
    tokens = Tokens.pack(prompts, rows, responses, 0, torch.device("cpu"))
    with torch.no_grad():
        scored = score(policy, tokens, temperature).logp[tokens.mask]
    return (torch.tensor([logp for c in completions for logp in c.logps]) - scored).abs()


def write(engine, prompts, temperature=1.0, tokens=32):
    seeds = [[1000 + row] for row in range(len(prompts))]
    return flat(engine.generate(Request(prompts, seeds, Sampling(tokens, temperature))))


def disturb(policy, seed):
    """Other weights that are still a language model: its log-probs move by about a nat."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3 * parameter.std())
    policy.version += 1


def test_greedy_tokens_are_those_of_our_loop(host, policy, prompts):
    ours = HFEngine(policy, ends(policy), 0, 256)
    theirs = VLLMEngine(host, policy, ends(policy))
    assert len(prompts) == 200
    assert [c.tokens for c in write(theirs, prompts, 0, 64)] == [
        c.tokens for c in write(ours, prompts, 0, 64)
    ]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_the_learners(host, policy, prompts, temperature):
    completions = write(VLLMEngine(host, policy, ends(policy)), prompts, temperature)
    assert differences(policy, prompts, completions, temperature).max() < 1e-4
    assert differences(policy, prompts, completions, temperature + 0.3).max() > 0.1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_continuations_have_the_learners_log_probs_and_the_responses_limit(
    host, policy, prompts, temperature
):
    """Greedy ones end the response as it ended. Two of each prefix share vLLM's prefix cache."""
    engine, prompts = VLLMEngine(host, policy, ends(policy)), prompts[:24]
    whole = [c.tokens for c in write(engine, prompts, temperature)]
    begun = [[tokens[:t] for t in range(0, len(tokens), 5) for _ in "ab"] for tokens in whole]
    seeds, sampling = [range(len(group)) for group in begun], Sampling(32, temperature)
    found = flat(engine.generate(Request(prompts, seeds, sampling, begun, continues=True)))
    rows = [row for row, group in enumerate(begun) for _ in group]
    texts = [(*b, *c.tokens) for b, c in zip(flat(begun), found, strict=True)]
    assert max(map(len, texts)) <= 32
    assert all(c.truncated <= (len(t) == 32) for t, c in zip(texts, found, strict=True))
    if temperature == 0:
        assert texts == [whole[row] for row in rows]
        return
    scored = score(policy, Tokens.pack(prompts, rows, texts, 0, torch.device("cpu")), 1.0).logp
    for logp, text, c in zip(scored.tolist(), texts, found, strict=True):
        own = logp[len(text) - len(c.tokens) : len(text)]
        assert c.logps == pytest.approx(own, abs=1e-4)


def test_three_syncs_of_other_weights_each_take_effect(host, policy, prompts):
    engine = VLLMEngine(host, frozen_copy(policy), ends(policy))
    for number in (1, 2, 3):
        old = frozen_copy(policy)
        disturb(policy, number)
        stale = write(engine, prompts[:32])
        assert differences(old, prompts[:32], stale).max() < 1e-4
        engine.sync(policy)
        fresh = write(engine, prompts[:32])
        assert differences(policy, prompts[:32], fresh).max() < 1e-4
        assert differences(old, prompts[:32], fresh).mean() > 0.1
        assert {c.version for c in stale} == {number - 1}
        assert {c.version for c in fresh} == {number}


def test_a_cache_that_is_kept_over_a_sync_would_be_read(host, policy, prompts, monkeypatch):
    """So the agreement right after a sync is the reset's doing."""
    engine = VLLMEngine(host, policy, ends(policy))
    long = [(prompt * 9)[:280] for prompt in prompts[:16]]  # whole blocks of the cache: 128 tokens
    for reset in (True, False):
        write(engine, long)
        if not reset:
            monkeypatch.setattr(host.llm, "reset_prefix_cache", lambda: True)
        disturb(policy, int(reset))
        engine.sync(policy)
        right = differences(policy, long, write(engine, long)).max() < 1e-4
        assert right == reset
    monkeypatch.undo()
    host.llm.reset_prefix_cache()


def test_policies_that_share_the_instance_keep_their_own_weights(host, policy, prompts):
    behaviour = VLLMEngine(host, frozen_copy(policy), ends(policy))
    trained = VLLMEngine(host, policy, ends(policy))
    before = write(behaviour, prompts[:32])
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=1e-2)
    policy.model(torch.tensor(prompts[:1])).logits.square().mean().backward()
    optimiser.step()
    policy.version += 1
    after = write(trained, prompts[:32])
    assert differences(policy, prompts[:32], after).max() < 1e-4
    assert differences(behaviour.policy, prompts[:32], after).mean() > 0.01
    assert [c.tokens for c in write(behaviour, prompts[:32])] == [c.tokens for c in before]


def test_an_error_in_mid_batch_leaves_no_request_behind(host, policy, prompts):
    engine = VLLMEngine(host, policy, ends(policy))
    with pytest.raises(ZeroDivisionError):
        engine.generate(Request(prompts[:8], [range(2)] * 8, Sampling(24)), lambda written: 1 / 0)
    assert not host.llm.llm_engine.has_unfinished_requests()
    again = engine.generate(Request(prompts[:3], [range(2)] * 3, Sampling(24)))
    assert [len(group) for group in again] == [2, 2, 2]


def test_responses_end_at_their_ends_and_come_back_in_order(host, policy, prompts):
    engine, done = VLLMEngine(host, policy, ends(policy)), []
    seeds = [[5, 6, 7], [8], [9, 5]]
    groups = engine.generate(Request(prompts[:3], seeds, Sampling(24)), done.extend)
    assert [len(group) for group in groups] == [3, 1, 2]
    assert len(done) == 6
    assert all(groups[prompt][number] == completion for prompt, number, completion in done)
    again = engine.generate(Request(prompts[2::-1], seeds[::-1], Sampling(24)))
    assert [[c.tokens for c in g] for g in again] == [[c.tokens for c in g] for g in groups[::-1]]
    many = flat(engine.generate(Request(prompts, [range(2)] * 200, Sampling(24))))
    (end,) = ends(policy)
    assert {c.truncated for c in many} == {True, False}
    for completion in many:
        assert completion.truncated == (end not in completion.tokens)
        assert completion.truncated or completion.tokens.index(end) == len(completion.tokens) - 1
        assert len(completion.tokens) == 24 or not completion.truncated
        assert len(completion.logps) == len(completion.tokens)


class Watched:
    """The part of a learner that a check reads."""

    pad, reference = 0, None

    def __init__(self, policy, temperature):
        self.policy, self.model, self.temperature = policy, policy.model, temperature

    def logp(self, tokens):
        with torch.no_grad():
            return score(self.policy, tokens, self.temperature).logp


def monitor(engine, policy, prompts, temperature):
    from envs.problem import Problem
    from experiments.sample import PromptedProblem

    config = run_config(algo=None, engine=engine_config(name="vllm"))
    config.train.temperature = temperature
    problems = [PromptedProblem(Problem(str(i), "", (), ()), p) for i, p in enumerate(prompts)]
    return engine_check.LogprobCheck(config, engine, Watched(policy, temperature), problems)


def test_the_monitor_catches_a_sync_left_out(host, policy, prompts, monkeypatch):
    engine = VLLMEngine(host, policy, ends(policy))
    engine.sync(policy)
    watch = monitor(engine, policy, prompts, 1.0)
    monkeypatch.setattr(host, "load", lambda policy: None)
    disturb(policy, 1)
    engine.sync(policy)
    found = watch.check(1)
    assert found.mean > 0.1
    assert watch.summary(found).startswith("WARNING: log-probs of the vllm engine")


def test_the_monitor_catches_raw_log_probs(host, policy, prompts, monkeypatch):
    """vLLM's default leaves the temperature out of what it tells, though not of what it draws."""
    watch = monitor(VLLMEngine(host, policy, ends(policy)), policy, prompts, 0.7)
    runner = host.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    monkeypatch.setattr(runner.sampler, "logprobs_mode", "raw_logprobs")
    monkeypatch.setattr(runner.sampler.topk_topp_sampler, "logprobs_mode", "raw_logprobs")
    found = watch.check(1)
    assert found.mean > 0.01
    assert "WARNING" in watch.summary(found)


def test_a_tied_head_and_biases_follow_a_sync(tmp_path, prompts):
    """The shape of Qwen2.5-Coder, the first real model for one GPU.

    The last test here: when its own vLLM is collected, the process groups of both go.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=1024, eos_token_id=2, **sizes, **heads)).eval()
    model.save_pretrained(tmp_path)
    policy = Policy(model)
    engine = VLLMEngine(Host(config_of(f"model.path={tmp_path}"), policy), policy, {2})
    for number in range(2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
        policy.version += 1
        engine.sync(policy)
        assert differences(policy, prompts[:8], write(engine, prompts[:8])).max() < 1e-4, number
