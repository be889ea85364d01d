"""Rewards that depend on more than a judgement, how responses are shown, signs of no learning."""

import statistics
from dataclasses import replace

import pytest
import torch

import algorithms
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig
from experiments.rollout.rewards import (
    MAX_LINES,
    MAX_WIDTH,
    LearningSigns,
    RewardShaping,
    sample_lines,
)
from experiments.sample import Origin, PromptedProblem, Sample, Turn
from tests.algorithms.batches import gradient, raw
from tests.compose import run_config, train_config
from tests.experiments.rollout.stored import prompt, sample

P, Q = prompt("p"), prompt("q")


def shaping(seed=0, **options):
    return RewardShaping(RewardConfig(**options), seed)


def of_length(count, reward=1.0, to=P, **given):
    return replace(sample(to, 0, reward, **given), tokens=(0,) * count)


def rewards(samples):
    return [s.reward for s in samples]


def test_without_either_a_batch_is_the_batch():
    batch = [sample(P, 0), sample(P, 1, 0.0)]
    assert shaping().shape(batch, 1) is batch


def test_noise_has_its_size_and_differs_by_step_and_seed():
    batch = [sample(P, token, token % 2) for token in range(4000)]
    one = rewards(shaping(dither=0.05).shape(batch, 1))
    noise = [paid - s.reward for paid, s in zip(one, batch, strict=True)]
    assert statistics.fmean(noise) == pytest.approx(0, abs=4 * 0.05 / 4000**0.5)
    assert statistics.pstdev(noise) == pytest.approx(0.05, rel=0.05)
    assert one == rewards(shaping(dither=0.05).shape(batch, 1))
    assert one != rewards(shaping(dither=0.05).shape(batch, 2))
    assert one != rewards(shaping(seed=1, dither=0.05).shape(batch, 1))
    assert rewards(batch)[:2] == [0, 1]  # what is recorded stays


def test_grpo_scales_the_noise_of_a_group_without_a_spread_up_to_one():
    """The known trap: with its std, GRPO learns from a group that is all right or all wrong."""
    case, lengths, _ = raw()
    grpo = algorithms.make("grpo", kl_coef=0.0)
    still = gradient(grpo, case, lengths, torch.zeros(12))
    dithered = shaping(dither=1e-3).shape([sample(P, i, 0.0) for i in range(12)], 1)
    noise = torch.tensor(rewards(dithered), dtype=torch.float64)
    noisy = gradient(grpo, case, lengths, noise)
    small = gradient(algorithms.make("dr_grpo"), case, lengths, noise)
    sizes = [float(found[1].abs().max()) for found in (still, noisy, small)]
    assert sizes[0] == 0
    assert sizes[1] > 1e-2 > 10 * sizes[2]


def test_a_length_is_compared_with_the_batches_before_it():
    kept, after = shaping(conciseness=1.0), shaping(conciseness=1.0)
    first = [of_length(20), of_length(10), of_length(5, 0.0), of_length(4, logps=None)]
    assert rewards(kept.shape(first, 1)) == [1.0, 1.0, 0.0, 1.0]  # nothing came before
    after.load_state_dict(kept.state_dict())
    second = [of_length(5), of_length(10), of_length(20), of_length(20, 0.0), of_length(5, to=Q)]
    for resumed in (kept, after):
        paid = rewards(resumed.shape(second, 2))
        assert paid == pytest.approx([1 + 0.5**0.5, 1.0, 0.3, -1.0, 1.0])
        assert resumed.state_dict() == {"shortest": {"p": 5, "q": 5}}


def test_an_accepted_answer_stays_above_a_failed_one():
    kept = shaping(conciseness=0.5)
    kept.shape([of_length(10)], 1)
    long, failed = rewards(kept.shape([of_length(1000), of_length(1, 0.0)], 2))
    assert (long, failed) == pytest.approx((0.65, 0.0))


class Tokenizer:
    def decode(self, tokens, skip_special_tokens):
        return str(tokens)


def test_the_accepted_response_is_shown_first_and_cut_to_the_screen():
    head, program = sample_lines(7, [sample(Q, 0, 0.0), sample(P, 1)], None)
    assert head == "step 7, a response to p: ACCEPTED, reward 1, 1 tokens"
    assert program == "    print(1)"
    hostile = "\x1b[2J" + "x" * 10_000 + "\ny" * 100
    head, *lines = sample_lines(1, [replace(sample(P, 0, program=hostile), truncated=True)], None)
    assert head.endswith("cut off") and len(lines) == MAX_LINES + 1
    assert lines[0].startswith("    ⟨U+001B⟩[2J") and len(lines[0]) <= MAX_WIDTH + 12


def test_without_a_program_the_last_answer_is_shown_and_without_fresh_responses_nothing():
    talk = replace(
        sample(P, 0, 0.0, program=""), tokens=tuple(range(6)), turns=(Turn(2, 2), Turn(2))
    )
    head, text = sample_lines(1, [talk], Tokenizer())
    assert "4 tokens in 2 answers" in head and text == "    [4, 5]"
    assert sample_lines(1, [replace(talk, logps=None)], Tokenizer()) == []


PROBLEMS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (1,)) for i in range(2)]


def judged(problem, accepted, truncated=False, program="print(1)", **changes):
    verdict = Verdict.ACCEPTED if accepted else Verdict.WRONG_ANSWER
    made = Sample(
        prompt=PROBLEMS[problem],
        tokens=(2, 3),
        logps=(-1.0, -1.0),
        judgement=Judgement(verdict, int(accepted), 1, 1, program),
        reward=float(accepted),
        truncated=truncated,
        origin=Origin("policy", "run", 1, 0),
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([judged(0, True), judged(0, False), judged(1, False)], []),
        ([judged(0, False), judged(1, False)], ["no response was accepted"]),
        ([judged(0, True), judged(1, False)], ["train.group_size=8"]),
        (
            [judged(0, True), judged(0, False, truncated=True)] + [judged(1, False, True)] * 2,
            ["75% of the responses were cut off"],
        ),
    ],
)
def test_signs(batch, said):
    signs = LearningSigns(run_config())
    assert signs.lines() == []
    signs.note(batch)
    lines = signs.lines()
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))


def test_without_reward_the_data_sets_programs_teach():
    signs = LearningSigns(run_config(train=train_config(offline_share=0.5)))
    signs.note([judged(0, False), judged(0, False)])
    assert not any("no response was accepted" in line for line in signs.lines())
