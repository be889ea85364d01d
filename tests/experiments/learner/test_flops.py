"""Each pass of an update is charged, once."""

import pytest

from algorithms.ppo import PPO
from experiments.learner.batching import pack
from experiments.learner.flops import texts_of
from experiments.policy.model_flops import critic_flops, model_flops
from experiments.policy.policy import Policy
from tests.compose import options_of
from tests.experiments.learner.learning import ALGORITHMS, GROUP, REWARDS, learner_of, samples_from


def charged(model, algorithm, **options):
    samples = samples_from(model, REWARDS)
    learner = learner_of(model, algorithm, **options)
    learner.update(samples, GROUP, None)
    return learner.ledger.counts.flops, texts_of(pack(samples, 0, model.device))


def test_lengths_are_those_of_prompts_and_responses(tiny):
    samples = samples_from(tiny, REWARDS)
    texts = texts_of(pack(samples, 0, tiny.device))
    lengths = [[len(s.tokens) for s in samples[at : at + GROUP]] for at in (0, 4, 8)]
    assert [(text.prompt, text.responses) for text in texts] == list(
        zip([4, 2, 7], lengths, strict=True)
    )


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_reference_once_and_the_policy_each_epoch(tiny, epochs):
    flops, texts = charged(tiny, ALGORITHMS["grpo"], epochs=epochs)
    model = model_flops(tiny)
    assert ALGORITHMS["grpo"].needs.reference
    trained = model.forward(texts) + model.backward(texts)
    assert flops == model.forward(texts) + epochs * trained


def test_a_critic_that_learns_apart_has_one_pass_in_a_batchs_only_step(tiny):
    algorithm = PPO(options_of("ppo"), 1.0)
    flops, texts = charged(tiny, algorithm)
    model, critic = model_flops(tiny), critic_flops(Policy(tiny))
    expected = critic.forward(texts) + critic.backward(texts)
    expected += model.forward(texts) + model.backward(texts)
    expected += model.forward(texts) if algorithm.needs.reference else 0
    assert flops == expected
    twice, texts = charged(tiny, algorithm, epochs=2)
    learned = critic.forward(texts) + critic.backward(texts)
    learned += model.forward(texts) + model.backward(texts)
    before = critic.forward(texts) + (model.forward(texts) if algorithm.needs.reference else 0)
    assert twice == before + 2 * learned


def test_a_shared_critic_reads_with_the_policy(tiny):
    flops, texts = charged(tiny, ALGORITHMS["ppo-shared"])
    model, width = model_flops(tiny), 32
    predicted = sum(sum(text.responses) for text in texts)
    value_head = 2 * width * predicted
    before = model.forward(texts) - 2 * (model.head - width) * predicted
    expected = before + model.forward(texts) + model.backward(texts) + 3 * value_head
    expected += model.forward(texts) if ALGORITHMS["ppo-shared"].needs.reference else 0
    assert flops == expected


def test_what_is_masked_is_not_trained_on(tiny):
    samples = samples_from(tiny, REWARDS)
    assert any(sample.truncated for sample in samples)
    whole, _ = charged(tiny, ALGORITHMS["grpo"])
    masked, _ = charged(tiny, ALGORITHMS["grpo"], truncation="mask")
    assert masked < whole


def test_log_probs_at_the_start_of_an_update_are_a_pass(tiny):
    plain, texts = charged(tiny, ALGORITHMS["grpo"])
    corrected, _ = charged(tiny, ALGORITHMS["grpo"], correction="truncated")
    assert corrected - plain == model_flops(tiny).forward(texts)
