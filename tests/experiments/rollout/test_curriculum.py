"""How often easy, middling and impossible problems are drawn, and what is known ahead."""

import copy
from collections import Counter
from types import SimpleNamespace

import pytest

from envs.problem import Problem
from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.rollout import generate
from experiments.rollout.curriculum import Band, Curriculum, no_effect_warning
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.flops import ModelFlops
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem
from experiments.seeds import stream

KINDS = ("easy", "middling", "impossible")
EACH = 20
NAMES = [f"{kind}{i}" for kind in KINDS for i in range(EACH)]
CONFIG = config_of(["algo=grpo"])
PROBLEMS = [PromptedProblem(Problem(name, "", (), ()), (2, i)) for i, name in enumerate(NAMES)]


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
    assert Band().kind(accepted, judged) == kind


class Engine:
    """Writes one token to each seed; remembers the prompts and seeds of each call."""

    def __init__(self):
        self.asked = []

    def generate(self, request, finished=None):
        prompts, seeds = request.prompts, request.seeds
        self.asked.append((list(prompts), seeds))
        pairs = zip(prompts, seeds, strict=True)
        return [
            [SimpleNamespace(tokens=(p[1],), logps=(0.0,)) for _ in group] for p, group in pairs
        ]


ONE = {"tokens": (1,), "generated": 1, "turns": ()}  # of a response of one token


def judged(owners, *_):
    """Easy problems are always solved, impossible ones never, others every second time."""
    return [
        SimpleNamespace(
            prompt=owner,
            reward=float(accepted),
            accepted=accepted,
            fresh=True,
            **ONE,
        )
        for i, owner in enumerate(owners)
        for accepted in [
            owner.problem.name.startswith("easy")
            or (owner.problem.name.startswith("middling") and i % 2 == 1)
        ]
    ]


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setattr(generate, "judged", lambda completions, *_: [None] * len(completions))
    monkeypatch.setattr(generate, "rewarded_samples", judged)

    def opened(seed=0, **train):
        config = copy.deepcopy(CONFIG)
        config.seed = seed
        vars(config.train).update({"prompts": 1, "curriculum": "band"} | train)
        ledger = Ledger(model=ModelFlops(blocks=10, head=1))
        return Rollouts(config, PROBLEMS, Engine(), None, None, None, ledger, "run")

    return opened


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


def test_solved_problems_are_drawn_in_one_pass_of_eight_and_unsolved_ones_in_one_of_four(opened):
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


def test_within_a_pass_problems_keep_the_shuffled_order(opened):
    draws = draws_by_pass(opened(seed=5), 6)
    for number, names in draws.items():
        order = list(range(len(NAMES)))
        stream(5, "order", number).shuffle(order)
        place = {NAMES[index]: turn for turn, index in enumerate(order)}
        assert names == sorted(names, key=place.get)


def test_a_problem_returns_to_every_pass_as_soon_as_its_responses_change(monkeypatch, opened):
    """An unsolved problem by its first success, a solved one after few failures."""
    rollouts = opened()
    step = 0
    while rollouts.state_dict()["taken"] < 6 * len(PROBLEMS):
        rollouts.collect(step := step + 1)
    turned = lambda owners, *_: [  # noqa: E731
        SimpleNamespace(prompt=o, reward=r, accepted=bool(r), fresh=True, **ONE)
        for o in owners
        for r in [0.0 if o.problem.name.startswith("easy") else 1.0]
    ]
    monkeypatch.setattr(generate, "rewarded_samples", turned)
    while rollouts.state_dict()["taken"] < 14 * len(PROBLEMS):
        rollouts.collect(step := step + 1)
    metrics = rollouts.metrics()
    assert metrics["curriculum/unsolved_share"] == 0
    assert not any(rollouts._curriculum._kind(name) == "solved" for name in NAMES[:EACH])


@pytest.mark.parametrize("curriculum", ["none", "band"])
def test_without_a_curriculum_and_in_the_first_pass_the_order_is_that_of_the_seed(
    curriculum, opened
):
    rollouts = opened(curriculum=curriculum, prompts=4, seed=3)
    passes = 1 if curriculum == "band" else 5
    drawn = [
        name for step in range(1, passes * 15 + 1) for name in problems_of(rollouts.collect(step))
    ]
    expected = []
    for number in range(passes):
        order = list(range(len(NAMES)))
        stream(3, "order", number).shuffle(order)
        expected += [NAMES[index] for index in order]
    assert drawn == expected
    if curriculum == "none":
        assert rollouts.state_dict() == {"taken": 5 * len(NAMES)}
        assert rollouts.metrics() == {}


def test_a_run_that_resumes_in_the_middle_of_a_pass_draws_the_same(opened):
    whole = opened(prompts=7)
    states, later = {}, {}
    for step in range(1, 40):
        later[step] = problems_of(whole.collect(step)), whole.metrics()
        states[step] = whole.state_dict()  # kept while the run goes on
    for at in (4, 25, 31):
        assert states[at]["taken"] % len(NAMES)
        resumed = opened(prompts=7)
        resumed.load_state_dict(copy.deepcopy(states[at]))
        for step in range(at + 1, 40):
            assert (problems_of(resumed.collect(step)), resumed.metrics()) == later[step]
        assert resumed.state_dict() == whole.state_dict()


def test_what_is_said_of_batches_to_come_is_true_and_the_next_one_is_always_known(opened):
    rollouts = opened(prompts=7, group_size=10)
    foreseen, planned, ahead = [], {}, Counter()
    for step in range(1, 60):
        upcoming = [prompt.problem.name for prompt in rollouts.upcoming_prompts(16)]
        for batch in range(step, step + 3):
            if (plan := rollouts.plan(batch, step)) is not None:
                asked = [prompt.tokens for prompt in plan[0]], plan[1]
                assert planned.setdefault(batch, asked) == asked
                ahead[batch > step] += 1
        samples = rollouts.collect(step)
        assert rollouts.engine.asked[-1] == planned[step]
        assert upcoming[:7] == [sample.prompt.problem.name for sample in samples[::10]]
        foreseen.append(len(upcoming))
    # All of the first pass is known at its beginning, afterwards the next batch alone.
    assert foreseen[:9] == [60, 53, 46, 39, 32, 25, 18, 11, 7]
    assert set(foreseen[9:]) == {7}
    assert ahead == {False: 59, True: 2 * 6 + 1}


def test_groups_that_are_replaced_count_too(opened):
    rollouts = opened(prompts=2, resample_zero_variance=True)
    for step in range(1, 60):
        names = problems_of(rollouts.collect(step))
        assert all(name.startswith("middling") for name in names)
    metrics = rollouts.metrics()
    assert metrics["curriculum/solved_share"] == metrics["curriculum/unsolved_share"] == 1 / 3
    assert rollouts.plan(61, 60) is None


def sample(name="p", **changes):
    values = {"fresh": True, "reward": 1.0, "accepted": True} | changes
    return SimpleNamespace(prompt=SimpleNamespace(problem=SimpleNamespace(name=name)), **values)


def test_only_fresh_responses_with_a_verdict_count():
    curriculum = Curriculum(seed=0)
    assert curriculum.metrics()["curriculum/passed_over"] == 0
    others = [sample(fresh=False), sample(reward=None)]
    curriculum.note_responses([sample(), sample(accepted=False), *others])
    assert curriculum.state_dict() == {"counts": {"p": (1, 2)}}


def test_metrics_are_shares_of_seen_problems_and_counts_of_the_batch():
    curriculum = Curriculum(seed=0)
    curriculum.note_responses([sample("a")] * 9 + [sample("b", accepted=False)] * 19)
    curriculum.note_responses([sample("c"), sample("d")])
    curriculum.note_draws(["a", "b", "c", "new"], turns=9)
    expected = {"solved_share": 0.25, "unsolved_share": 0.25, "passed_over": 5, "returned": 2}
    assert curriculum.metrics() == {f"curriculum/{key}": value for key, value in expected.items()}
    curriculum.start_batch()
    assert curriculum.metrics()["curriculum/returned"] == 0


def test_a_run_too_short_for_it_is_told():
    config = copy.deepcopy(CONFIG)
    config.steps, config.train.prompts, config.train.curriculum = 128, 8, "band"
    assert "1024 draws of 512 problems" in no_effect_warning(config, 512)
    assert no_effect_warning(config, 511) is None
    config.train.offline_share = 0.5  # four fresh responses to a problem in each pass
    assert "within 3 passes" in no_effect_warning(config, 400)
    config.train.curriculum = "none"
    assert no_effect_warning(config, 512) is None


def test_it_needs_fresh_responses_and_batches_that_are_not_recorded():
    with pytest.raises(UserError, match=r"train.offline_share=1.0: no response is fresh"):
        config_of(["algo=sft", "train.offline_share=1", "train.curriculum=band"])
    frozen = ["replay.frozen=true", "replay.from_runs=[there]", "train.curriculum=band"]
    with pytest.raises(UserError, match=r"frozen=true: .*; use train.curriculum=none"):
        config_of(["algo=spo", *frozen])
