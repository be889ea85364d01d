"""How often easy, middling and impossible problems are drawn, and what is known ahead."""

import copy
from collections import Counter
from dataclasses import replace

import pytest

from experiments.errors import UserError
from experiments.rollout.problem_order import Curriculum, kind_of
from experiments.sample import stream
from tests.experiments.compose import config
from tests.experiments.rollout.stored import prompt, rollouts_of, sample

KINDS = ("easy", "middling", "impossible")
EACH = 20
NAMES = [f"{kind}{i}" for kind in KINDS for i in range(EACH)]
PROBLEMS = [prompt(name) for name in NAMES]


def reward(name, i):
    """Easy problems are always solved, impossible ones never, others every second time."""
    return name.startswith("easy") or (name.startswith("middling") and i % 2 == 1)


def opened(*overrides):
    band = ("algo=grpo", "train.prompts=1", "train.curriculum=band")
    return rollouts_of(PROBLEMS, reward, *band, *overrides)


@pytest.mark.parametrize(
    ("accepted", "judged", "kind"),
    [
        (0, 0, "band"),
        (8, 8, "band"),  # its mean is .9
        (9, 9, "solved"),
        (18, 20, "band"),
        (0, 18, "band"),  # its mean is .05
        (0, 19, "unsolved"),
        (1, 200, "band"),  # it was solved once
    ],
)
def test_what_is_solved_or_unsolved_is_decided_by_the_posterior_mean(accepted, judged, kind):
    assert kind_of(accepted, judged) == kind


def problems_of(samples):
    return list(dict.fromkeys(sample.prompt.problem.name for sample in samples))


def draws_by_pass(rollouts, passes):
    """One problem a batch, so that each batch lies in one pass: {pass: its problems}."""
    draws, step = {}, 0
    while True:
        step += 1
        (name,) = problems_of(rollouts.collect(step))
        number = (rollouts.state_dict()["taken"] - 1) // len(PROBLEMS)
        if number >= passes:
            return draws
        draws.setdefault(number, []).append(name)


def test_solved_problems_are_drawn_in_one_pass_of_eight_and_unsolved_ones_in_one_of_four():
    draws = draws_by_pass(opened(), 3 + 16)
    assert [sorted(draws[number]) for number in range(2)] == [sorted(NAMES)] * 2
    # After two draws of eight responses the easy ones are solved, after three the others unsolved.
    assert {len([n for n in draws[2] if n.startswith(kind)]) for kind in KINDS[1:]} == {EACH}
    assert len([name for name in draws[2] if name.startswith("easy")]) < EACH / 2
    for first in (3, 3 + 8):  # whichever eight passes
        counts = Counter(name for number in range(first, first + 8) for name in draws[number])
        times = {"easy": 1, "middling": 8, "impossible": 2}
        assert counts == {name: times[name.rstrip("0123456789")] for name in NAMES}
    # They do not all come back together.
    for kind in ("easy", "impossible"):
        with_some = [n for n in range(3, 11) if any(name.startswith(kind) for name in draws[n])]
        assert len(with_some) >= 4


@pytest.mark.parametrize("curriculum", ["none", "band"])
def test_without_a_curriculum_and_in_the_first_pass_the_order_is_that_of_the_seed(curriculum):
    rollouts = opened(f"train.curriculum={curriculum}", "train.prompts=4", "seed=3")
    passes = 1 if curriculum == "band" else 5
    steps = range(1, passes * 15 + 1)
    drawn = [name for step in steps for name in problems_of(rollouts.collect(step))]
    expected = []
    for number in range(passes):
        order = list(range(len(NAMES)))
        stream(3, "order", number).shuffle(order)
        expected += [NAMES[index] for index in order]
    assert drawn == expected
    if curriculum == "none":
        assert rollouts.state_dict()["taken"] == 5 * len(NAMES)
        assert rollouts.metrics() == {}


def test_a_run_that_resumes_in_the_middle_of_a_pass_draws_the_same():
    whole = opened("train.prompts=7")
    states, later = {}, {}
    for step in range(1, 40):
        later[step] = problems_of(whole.collect(step)), whole.metrics()
        states[step] = whole.state_dict()  # kept while the run goes on
    for at in (4, 25, 31):
        assert states[at]["taken"] % len(NAMES)
        resumed = opened("train.prompts=7")
        resumed.load_state_dict(copy.deepcopy(states[at]))
        for step in range(at + 1, 40):
            assert (problems_of(resumed.collect(step)), resumed.metrics()) == later[step]
        assert resumed.state_dict() == whole.state_dict()


def test_upcoming_prompts_come_and_the_next_batch_is_always_known():
    rollouts = opened("train.prompts=7", "train.group_size=10")
    foreseen, planned, ahead = [], {}, Counter()
    for step in range(1, 60):
        upcoming = [each.problem.name for each in rollouts.upcoming_prompts(16)]
        for batch in range(step, step + 3):
            if (plan := rollouts.plan(batch, step)) is not None:
                asked = [each.problem.name for each in plan[0]], plan[1]
                assert planned.setdefault(batch, asked) == asked
                ahead[batch > step] += 1
        samples = rollouts.collect(step)
        assert rollouts.responder.asked[-1] == planned[step]
        assert upcoming[:7] == [each.prompt.problem.name for each in samples[::10]]
        foreseen.append(len(upcoming))
    # All of the first pass is known at its beginning, afterwards the next batch alone.
    assert foreseen[:9] == [60, 53, 46, 39, 32, 25, 18, 11, 7]
    assert set(foreseen[9:]) == {7}
    assert ahead == {False: 59, True: 2 * 6 + 1}


def test_only_fresh_responses_with_a_verdict_count():
    curriculum, p = Curriculum(seed=0), prompt("p")
    fresh = [sample(p, 0, 1.0), sample(p, 0, 0.0)]
    others = [replace(fresh[0], replayed=3), replace(fresh[0], reward=None)]
    curriculum.note_responses([*fresh, *others])
    assert curriculum.state_dict() == {"counts": {"p": (1, 2)}}


def test_metrics_are_shares_of_seen_problems_and_counts_of_the_batch():
    curriculum = Curriculum(seed=0)
    curriculum.note_responses([sample(prompt("a"), 0)] * 9 + [sample(prompt("b"), 0, 0.0)] * 19)
    curriculum.note_responses([sample(prompt("c"), 0), sample(prompt("d"), 0)])
    curriculum.note_draws(["a", "b", "c", "new"], turns=9)
    expected = {"solved_share": 0.25, "unsolved_share": 0.25, "passed_over": 5, "returned": 2}
    assert curriculum.metrics() == {f"curriculum/{key}": value for key, value in expected.items()}
    curriculum.start_batch()
    assert curriculum.metrics()["curriculum/returned"] == 0


def test_it_needs_fresh_responses_and_batches_that_are_not_recorded():
    for given in (
        ["algo=sft", "train.offline_share=1"],
        ["algo=spo", "replay.frozen=true", "replay.from_runs=[there]"],
    ):
        with pytest.raises(UserError):
            config(*given, "train.curriculum=band")
