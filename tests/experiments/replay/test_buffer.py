"""The replay store: what it gives, what it forgets, and that it goes on as if never stopped."""

from collections import Counter
from dataclasses import replace

import pytest

from envs.reward import RewardConfig
from experiments.errors import UserError
from experiments.replay.buffer import ReplayBuffer
from experiments.replay.programs import JudgingCosts
from experiments.run_dir import checkpoints
from experiments.run_dir.ledger import Ledger
from experiments.sample import Turn
from tests.compose import replay_config
from tests.experiments.rollout.stored import prompt, sample

P, Q = prompt("p"), prompt("q")


class Others:
    """A source with samples to one problem."""

    digest = "others"

    def __init__(self, *samples):
        self.samples, self.left_out = samples, Counter()

    def samples_for(self, asked):
        return [s for s in self.samples if s.prompt == asked]


@pytest.fixture
def store_of():
    def make(*sources, now=lambda: 0, **options):
        costs = JudgingCosts(Ledger(), "replayed_programs")
        options = replay_config(**options)
        return ReplayBuffer(options, RewardConfig(), now, costs, sources)

    return make


def tokens(samples):
    return [s.tokens[0] for s in samples]


def filled(store, count=4, of=P, **given):
    store.add_batch([sample(of, token, **given) for token in range(count)], 1)
    return store


def test_a_draw_repeats_nothing_and_counts_what_is_missing(store_of):
    store = filled(store_of())
    assert sorted(tokens(store.draw(P, 4, 0))) == [0, 1, 2, 3]
    assert len(store.draw(P, 6, 0)) == 4
    assert store.draw(Q, 2, 0) == []
    assert store.metrics()["replay/missing"] == 4


def test_a_draw_is_what_was_taken_in_and_says_that_it_is_replayed(store_of):
    store, written = store_of(), sample(P, 7, 0.0, version=3, step=5)
    store.add_batch([written], 5)
    (drawn,) = store.draw(P, 1, 0)
    assert (written.fresh, drawn.fresh, drawn.offline) == (True, False, False)
    assert vars_of(drawn) == vars_of(written)


def test_a_conversation_comes_back_with_its_observations_and_the_reward_of_its_answers(store_of):
    """Three answers of 2, 1 and 2 tokens; the penalty on length counts no token that was read."""
    turns = (Turn(2, 3), Turn(1, 2), Turn(2))
    written = replace(sample(P, 7, 1.0), tokens=tuple(range(10)), logps=(-1.0,) * 10, turns=turns)
    store = store_of()
    store.reward = RewardConfig(overlong=[4, 6], overlong_penalty=0.5)
    store.add_batch([written], 1)
    (drawn,) = store.draw(P, 1, 0)
    assert (drawn.turns, drawn.generated, drawn.reward) == (turns, 5, 0.75)
    assert drawn.own == [True] * 2 + [False] * 3 + [True] + [False] * 2 + [True] * 2


def vars_of(s):
    return (s.prompt, s.tokens, s.logps, s.judgement, s.reward, s.truncated, s.origin)


def test_uniform_draws_are_uniform_and_depend_on_their_seed_alone(store_of):
    store = filled(store_of())
    drawn = Counter(token for seed in range(600) for token in tokens(store.draw(P, 2, seed)))
    assert all(250 < drawn[token] < 350 for token in range(4))  # 300 ± 12
    assert tokens(store.draw(P, 4, "a")) == tokens(store.draw(P, 4, "a"))


def test_balanced_draws_take_as_many_of_each_reward(store_of):
    store = store_of(sampling="balanced")
    store.add_batch([sample(P, token, float(token == 5)) for token in range(6)], 1)
    for seed in range(20):
        assert 5 in tokens(store.draw(P, 2, seed))
    assert len(store.draw(P, 6, 0)) == 6  # and where one runs out, the others go on
    assert store.draw(Q, 2, 0) == []
    recent = filled(store_of(sampling="recent"))
    assert tokens(recent.draw(P, 3, 0)) == [3, 2, 1]


def test_only_what_was_written_for_the_batch_is_taken_in(store_of):
    store = filled(store_of())
    replayed, theirs = store.draw(P, 2, 0), sample(P, 9, source="dataset", logps=None)
    store.add_batch([*replayed, theirs], 2)
    assert len(store) == 4
    assert store_of(own=False).add_batch([sample(P, 1)], 1) is None
    assert len(filled(store_of(own=False))) == 0


def test_too_old_ones_go_and_are_counted(store_of):
    version = [0]
    store = store_of(Others(sample(P, 9, source="run")), now=lambda: version[0], max_age=2)
    for version[0] in range(4):
        store.add_batch([sample(P, version[0], version=version[0])], version[0])
    assert sorted(tokens(store.draw(P, 9, 0))) == [1, 2, 3, 9]  # others' have no age
    assert store.metrics()["replay/too_old"] == 1


def test_used_up_ones_go_and_are_counted(store_of):
    store = filled(store_of(max_uses=2), 2)
    for _ in range(2):
        assert len(store) == 2
        store.add_batch(store.draw(P, 2, 0), 2)
    assert (len(store), store.metrics()["replay/used_up"]) == (0, 2)


def test_beyond_its_capacity_the_oldest_go(store_of):
    store = store_of(capacity=3)
    for token in range(5):
        store.add_batch([sample(P, token)], token)
    assert sorted(tokens(store.draw(P, 9, 0))) == [2, 3, 4]
    assert store.metrics()["replay/beyond_capacity"] == 2


def test_others_programs_are_charged_once_when_they_are_first_used(store_of):
    same = [sample(P, 1, source="run", program="print(1)"), sample(P, 2, source="file", program="")]
    store = store_of(Others(*same, sample(P, 3, source="run", program="print(1)")))
    for _ in range(2):
        store.add_batch(store.draw(P, 9, 0), 1)
    assert store.costs.ledger.counts.replayed_programs == 1
    assert store.costs.stats.tests_run == 1
    store.add_batch([sample(P, 4)], 2)
    store.add_batch(store.draw(P, 9, 0), 3)  # its own were charged when they were judged
    assert store.costs.ledger.counts.replayed_programs == 1


def test_it_goes_on_as_if_it_had_never_stopped(store_of, tmp_path):
    def step(store, number):
        fresh = [sample(P, 10 * number + i, version=number) for i in range(8)]
        used = [*store.draw(P, 5, number), *store.draw(Q, 2, number)]
        store.add_batch([*fresh, *used], number)
        return tokens(used)

    others = Others(*(sample(Q, 200 + i, source="run") for i in range(3)))
    given = {"max_uses": 2, "capacity": 20}
    whole, stopped = store_of(others, **given), store_of(others, **given)
    for number in range(1, 5):
        step(whole, number)
        step(stopped, number)
    folder = tmp_path / "checkpoints" / "step-4"
    folder.mkdir(parents=True)
    state = {"step": 4, "replay": stopped.state_dict()}
    checkpoints.write(folder, state, {"replay": stopped.table})
    state, again = checkpoints.latest(tmp_path, pytest.fail), store_of(others, **given)
    again.load_rows(state["tables"]["replay"])
    again.load_state_dict(state["replay"])
    for number in range(5, 10):
        assert step(again, number) == step(whole, number)
    assert again.metrics() == whole.metrics()
    changed = Others()
    changed.digest = "changed"
    with pytest.raises(UserError, match="changed since the checkpoint"):
        store_of(changed, **given).load_state_dict(state["replay"])
