"""Which problems and seeds a batch is made of, planned or not, and what is paid for."""

from dataclasses import replace

import pytest

from experiments.errors import UserError
from experiments.rollout.rollouts import MAX_RESAMPLINGS
from tests.experiments.compose import config
from tests.experiments.rollout.stored import prompt, rollouts_of, sample

PROBLEMS = [prompt(f"p{i}") for i in range(6)]
NAMES = {p.problem.name for p in PROBLEMS}
PAIRS = ("algo=dapo", "train.prompts=2", "train.group_size=2")
RESAMPLED = "train.resample_zero_variance=true"


def collected(mixed, *overrides):
    """(names of the batch's problems, generated tokens, seeds) for problems that have a spread."""
    reward = lambda name, i: name in mixed and i % 2  # noqa: E731
    rollouts = rollouts_of(PROBLEMS, reward, *PAIRS, *overrides)
    names = [each.prompt.problem.name for each in rollouts.collect(1)[::2]]
    seeds = [s for _, groups in rollouts.responder.asked for group in groups for s in group]
    counts = rollouts.ledger.counts
    # In each group a prompt of three tokens and two responses of one are read, two predicted.
    assert counts.flops == counts.generated_tokens / 2 * 2 * (10 * 4 + 1 * 2)
    return names, counts.generated_tokens, seeds


def test_zero_variance_groups_are_replaced_and_paid_for():
    plain, tokens, seeds = collected(set())
    assert (len(plain), tokens) == (2, 4)
    assert collected(NAMES, RESAMPLED) == (plain, tokens, seeds)  # nothing to replace
    names, paid, drawn = collected(NAMES - {plain[0]}, RESAMPLED)
    assert names[0] == plain[1] and len(set(names)) == 2 and plain[0] not in names
    assert paid == 6 and drawn[:4] == seeds and len(set(drawn)) == 6
    names, paid, _ = collected(set(), RESAMPLED)  # no problem has a spread
    assert len(names) == 2 and paid == 4 * (1 + MAX_RESAMPLINGS)


def test_a_group_of_one_never_has_a_spread():
    with pytest.raises(UserError, match=r"train.group_size=1 .*train.resample_zero_variance=true"):
        config("algo=sft", "train.group_size=1", RESAMPLED)


def test_a_group_in_which_the_judge_failed_is_left_out_whole():
    rollouts = rollouts_of(PROBLEMS, lambda *_: 1, *PAIRS)
    answers = rollouts.responder.respond

    def broken(*given):
        first, second, *rest = answers(*given)[1]
        return [], [first, replace(second, reward=None), *rest]

    rollouts.responder.respond = broken
    assert [s.reward for s in rollouts.collect(1)] == [1.0, 1.0]


def test_a_planned_batch_is_what_the_engine_is_asked_for_when_its_turn_comes():
    rollouts, planned = rollouts_of(PROBLEMS, lambda *_: 1, *PAIRS), {}
    for step in range(1, 8):
        for batch in range(step, step + 3):
            prompts, seeds = rollouts.plan(batch, step)
            asked = ([p.problem.name for p in prompts], seeds)
            assert planned.setdefault(batch, asked) == asked
        rollouts.collect(step)
        assert rollouts.responder.asked[-1] == planned[step]


class Pool:
    """Has a program to every other problem; remembers what was asked of it."""

    def __init__(self):
        self.foreseen, self.charged = [], []

    def prefetch(self, prompt):
        self.foreseen.append(prompt.problem.name)

    def draw(self, prompt, count, *seed):
        there = int(prompt.problem.name[1:]) % 2
        return [sample(prompt, hash(seed) % 99, 0.0, source="dataset")] * count * there

    def charge(self, prompt):
        self.charged.append(prompt.problem.name)


def test_a_planned_batch_leaves_room_for_the_programs_beside_it():
    pool, planned = Pool(), {}
    rollouts = rollouts_of(
        PROBLEMS, lambda *_: 1, *PAIRS, "algo=spo", "train.offline_share=0.5", offline=pool
    )
    for step in range(1, 8):
        for batch in range(max(planned, default=0) + 1, step + 3):
            rollouts.prefetch(batch, step)
            planned[batch] = rollouts.plan(batch, step)
            assert pool.foreseen[-2:] == [p.problem.name for p in planned[batch][0]]
        samples = rollouts.collect(step)
        names = [p.problem.name for p in planned[step][0]]
        assert rollouts.responder.asked[-1] == (names, planned[step][1])
        assert [len(of) for of in planned[step][1]] == [2 - int(name[1:]) % 2 for name in names]
        assert len(samples) == 4 and pool.charged[-2:] == names
        assert len(pool.charged) == 2 * step


def test_a_batch_that_depends_on_those_before_is_not_planned():
    assert rollouts_of(PROBLEMS, lambda *_: 1, *PAIRS, RESAMPLED).plan(2, 1) is None
    assert rollouts_of(PROBLEMS, lambda *_: 1, *PAIRS, replay=object()).plan(2, 1) is None
    resets = ("algo=ppo", "train.reset_share=0.5")  # nor one whose responses begin with a prefix
    assert rollouts_of(PROBLEMS, lambda *_: 1, *PAIRS, *resets).plan(2, 1) is None
