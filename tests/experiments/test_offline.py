"""Offline samples: the data set's own programs, judged by the real judge in the real sandbox."""

import pytest

from envs.judge import Judge
from envs.problem import Problem, Test
from envs.reward import RewardConfig
from envs.sandbox.select import SandboxConfig, open_sandbox
from experiments.offline import OfflinePool
from experiments.samples import PromptedProblem

DOUBLE = ("print(2*int(input()))", "n=int(input())\nprint(n+n)")
WRONG = ("print(int(input())**2)", "print(input())")
TESTS = (Test("3\n", "6\n"), Test("5\n", "10\n"))


@pytest.fixture(scope="module")
def judge():
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        yield Judge(sandbox)


def pool_of(nano, judge, max_tokens=64):
    tokenizer = nano[1]
    return OfflinePool(tokenizer, judge, RewardConfig(), max_tokens, lambda program: program)


def prompted(solutions=DOUBLE, incorrect=WRONG):
    problem = Problem("p", "double", (), TESTS, solutions=solutions, incorrect_solutions=incorrect)
    return PromptedProblem(problem, (1, 2, 3))


def test_right_and_wrong_programs_come_in_equal_parts_and_are_paid_by_the_judge(nano, judge):
    tokenizer = nano[1]
    samples = pool_of(nano, judge).draw(prompted(), 8, 0, 1)
    assert [s.reward for s in samples].count(1.0) == 4
    for sample in samples:
        program = tokenizer.decode(list(sample.tokens), skip_special_tokens=True)
        assert (program in DOUBLE) == (sample.reward == 1.0)
        assert sample.tokens[-1] == tokenizer.eos_token_id
        assert sample.offline


def test_draws_depend_on_the_seed_and_on_nothing_else(nano, judge):
    pool = pool_of(nano, judge)
    first = [s.tokens for s in pool.draw(prompted(), 8, 0, 1)]
    assert [s.tokens for s in pool.draw(prompted(), 8, 0, 1)] == first
    assert [s.tokens for s in pool.draw(prompted(), 8, 0, 2)] != first


def test_a_mislabelled_solution_is_paid_by_its_verdict(nano, judge):
    samples = pool_of(nano, judge).draw(prompted(solutions=WRONG[:1], incorrect=()), 2, 0)
    assert [s.reward for s in samples] == [0.0, 0.0]


def test_programs_that_do_not_fit_are_left_out(nano, judge):
    assert pool_of(nano, judge, max_tokens=2).draw(prompted(), 4, 0) == []
    assert pool_of(nano, judge).draw(prompted((), ()), 4, 0) == []
