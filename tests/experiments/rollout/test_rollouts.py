"""Which problems a batch is made of, where groups without a spread make way for others."""

from types import SimpleNamespace

import pytest

from envs.problem import Problem
from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.rollout import generate
from experiments.rollout.rollouts import MAX_RESAMPLINGS, Rollouts
from experiments.run_dir.flops import ModelFlops
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem

PROBLEMS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (2, i)) for i in range(6)]


class FakeEngine:
    """Writes the prompt's number; remembers the seeds."""

    def __init__(self):
        self.seeds, self.asked = [], []

    def generate(self, request, finished=None):
        prompts, seeds = request.prompts, request.seeds
        self.seeds += [seed for group in seeds for seed in group]
        self.asked.append((list(prompts), seeds))
        pairs = zip(prompts, seeds, strict=True)
        return [
            [SimpleNamespace(tokens=(p[1],), logps=(0.0,)) for _ in group] for p, group in pairs
        ]


def answered(prompt, reward):
    """A response of one token."""
    one = {"tokens": (1,), "generated": 1, "turns": (), "seed": None}
    return SimpleNamespace(prompt=prompt, reward=reward, **one)


def judge_by(monkeypatch, samples_of):
    """Samples come from `samples_of`, which gets their prompts, and nothing is judged."""
    monkeypatch.setattr(generate, "judged", lambda completions, *_: [None] * len(completions))
    monkeypatch.setattr(generate, "rewarded_samples", samples_of)


@pytest.fixture
def collected(monkeypatch):
    """(names of the batch's problems, generated tokens, seeds) for problems that have a spread."""

    def collect(mixed, **train):
        def judged(owners, *_):
            paid = [float(o.problem.name in mixed and i % 2) for i, o in enumerate(owners)]
            return [answered(o, r) for o, r in zip(owners, paid, strict=True)]

        judge_by(monkeypatch, judged)
        given = [f"train.{key}={value}" for key, value in train.items()]
        config = config_of(["algo=dapo", "train.prompts=2", "train.group_size=2", *given])
        engine, ledger = FakeEngine(), Ledger(model=ModelFlops(blocks=10, head=1))
        drawn = Rollouts(config, PROBLEMS, engine, None, None, None, ledger, "run")
        samples = drawn.collect(1)
        names = [sample.prompt.problem.name for sample in samples[::2]]
        # In each group a prompt of two tokens and two responses of one are read, two predicted.
        assert ledger.counts.flops == ledger.counts.generated_tokens / 2 * 2 * (10 * 3 + 1 * 2)
        return names, ledger.counts.generated_tokens, engine.seeds

    return collect


def test_groups_without_a_spread_are_replaced_and_paid_for(collected):
    plain, tokens, seeds = collected(set())
    assert (len(plain), tokens) == (2, 4)
    order = collected({f"p{i}" for i in range(6)}, resample_zero_variance=True)
    assert order == (plain, tokens, seeds)  # nothing to replace, nothing is another
    mixed = {f"p{i}" for i in range(6)} - {plain[0]}
    names, paid, drawn = collected(mixed, resample_zero_variance=True)
    assert names[0] == plain[1]
    assert len(set(names)) == 2
    assert plain[0] not in names
    assert paid == 6
    assert drawn[:4] == seeds
    assert len(set(drawn)) == 6


def test_it_ends_where_no_problem_has_a_spread(collected):
    names, paid, _ = collected(set(), resample_zero_variance=True)
    assert len(names) == 2  # the last round's
    assert paid == 4 * (1 + MAX_RESAMPLINGS)


def test_a_group_of_one_never_has_a_spread():
    with pytest.raises(
        UserError, match=r"train.resample_zero_variance=true with train.group_size=1"
    ):
        config_of(["algo=sft", "train.group_size=1", "train.resample_zero_variance=true"])


def planning(*overrides):
    config = config_of(["algo=dapo", "train.prompts=2", "train.group_size=2", *overrides])
    return Rollouts(config, PROBLEMS, FakeEngine(), None, None, None, Ledger(), "run")


def test_a_planned_batch_is_what_the_engine_is_asked_for_when_its_turn_comes(monkeypatch):
    def judged(owners, *_):
        return [answered(owner, 1.0) for owner in owners]

    judge_by(monkeypatch, judged)
    drawn, planned = planning(), {}
    for step in range(1, 8):
        for batch in range(step, step + 3):
            prompts, seeds = drawn.plan(batch, step)
            asked = ([prompt.tokens for prompt in prompts], seeds)
            assert planned.setdefault(batch, asked) == asked
        drawn.collect(step)
        assert drawn.engine.asked[-1] == planned[step]


class Pool:
    """Has a program to every other problem; remembers what was asked of it."""

    def __init__(self):
        self.foreseen, self.charged = [], []

    def prefetch(self, prompt):
        self.foreseen.append(prompt.problem.name)

    def draw(self, prompt, count, *seed):
        there = int(prompt.problem.name[1:]) % 2
        return [SimpleNamespace(prompt=prompt, reward=0.0, seed=seed)] * count * there

    def charge(self, prompt):
        self.charged.append(prompt.problem.name)


def test_a_planned_batch_leaves_room_for_the_programs_beside_it(monkeypatch):
    def judged(owners, *_):
        return [answered(owner, 1.0) for owner in owners]

    judge_by(monkeypatch, judged)
    drawn, planned = planning("algo=spo", "train.offline_share=0.5"), {}
    drawn.offline = pool = Pool()
    for step in range(1, 8):
        for batch in range(max(planned, default=0) + 1, step + 3):
            drawn.prefetch(batch, step)
            planned[batch] = drawn.plan(batch, step)
            of_batch = [prompt.problem.name for prompt in planned[batch][0]]
            assert pool.foreseen[-2:] == of_batch
        samples = drawn.collect(step)
        prompts, seeds = planned[step]
        assert drawn.engine.asked[-1] == ([prompt.tokens for prompt in prompts], seeds)
        assert [len(of) for of in seeds] == [2 - int(p.problem.name[1:]) % 2 for p in prompts]
        assert {sample.seed for sample in samples} <= {None, (0, step)}
        assert pool.charged[-2:] == [prompt.problem.name for prompt in prompts]
        assert len(pool.charged) == 2 * step


def test_a_batch_that_hangs_on_those_before_is_not_planned():
    assert planning("train.resample_zero_variance=true").plan(2, 1) is None
    used_again = planning()
    used_again.replay = object()
    assert used_again.plan(2, 1) is None
