"""Offline samples: the data set's own programs, judged by the real judge in the real sandbox."""

import pytest

from envs.judge.judge import Judge, JudgeConfig
from envs.problem import Problem, Test
from envs.reward import RewardConfig
from envs.sandbox import SandboxConfig, open_sandbox
from experiments.replay.judgements import JudgementCache, JudgingCosts
from experiments.replay.sources import OfflinePrograms
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem

DOUBLE = ("print(2*int(input()))", "n=int(input())\nprint(n+n)")
WRONG = ("print(int(input())**2)", "print(input())")
BINARY = RewardConfig()
TESTS = (Test("3\n", "6\n"), Test("5\n", "10\n"))


@pytest.fixture(scope="module")
def judge():
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        yield Judge(sandbox)


@pytest.fixture
def pool_of(nano, judge, tmp_path):
    def make(max_tokens=64, per_problem=8, judge=judge, reward=BINARY):
        return OfflinePrograms(
            JudgementCache(tmp_path, judge, ledger := Ledger()),
            tokenizer=nano[1],
            reward=reward,
            max_tokens=max_tokens,
            per_problem=per_problem,
            format_response=lambda program: program,
            costs=JudgingCosts(ledger, "offline_programs"),
        )

    return make


def prompted(solutions=DOUBLE, incorrect=WRONG):
    problem = Problem("p", "double", (), TESTS, solutions=solutions, incorrect_solutions=incorrect)
    return PromptedProblem(problem, (1, 2, 3))


def test_right_and_wrong_programs_come_in_equal_parts_and_are_paid_by_the_judge(nano, pool_of):
    tokenizer = nano[1]
    samples = pool_of().draw(prompted(), 8, 0, 1)
    assert [s.reward for s in samples].count(1.0) == 4
    for sample in samples:
        program = tokenizer.decode(list(sample.tokens), skip_special_tokens=True)
        assert (program in DOUBLE) == (sample.reward == 1.0)
        assert sample.tokens[-1] == tokenizer.eos_token_id
        assert sample.offline


def test_programs_that_do_not_fit_are_left_out(nano, pool_of):
    assert pool_of(max_tokens=2).draw(prompted(), 4, 0) == []
    assert pool_of().draw(prompted((), ()), 4, 0) == []


def test_programs_are_kept_apart_by_structure_and_not_by_writing(pool_of):
    again = ("print(2 * int(input()))  # twice", "m = int(input())\nprint(m + m)")
    pool, prompt = pool_of(), prompted((*DOUBLE, *again), ())
    assert len({s.tokens for s in pool.draw(prompt, 50, 0)}) == 2
    pool.charge(prompt)
    assert pool.counts == {"used": 2, "the same but for its writing": 2}


def test_at_most_so_many_of_each_kind(pool_of):
    many = tuple(f"print(2*int(input())+{i}*0)" for i in range(9))
    pool = pool_of(per_problem=3)
    drawn = pool.draw(prompted(many, WRONG), 60, 0)
    assert len({s.tokens for s in drawn if s.accepted}) == 3
    assert len({s.tokens for s in drawn if not s.accepted}) == 2
    pool.charge(prompted(many, WRONG))
    assert pool.counts["beyond train.offline_per_problem"] == 6
    assert {s.tokens for s in pool_of(per_problem=3).draw(prompted(many, WRONG), 60, 5)} == {
        s.tokens for s in drawn
    }


def test_a_program_is_judged_once_and_charged_in_every_run(judge, pool_of):
    before = judge.stats.submissions
    first = pool_of()
    samples = first.draw(prompted(), 8, 0)
    assert first.costs.ledger.counts.offline_programs == first.costs.stats.programs_judged == 0
    first.charge(prompted())
    judged = judge.stats.submissions
    assert judged == before + 4
    second = pool_of()
    assert second.draw(prompted(), 8, 0) == samples
    second.charge(prompted())
    assert judge.stats.submissions == judged
    assert [pool.costs.ledger.counts.offline_programs for pool in (first, second)] == [4, 4]
    assert first.costs.stats == second.costs.stats
    assert first.costs.stats.programs_judged == 4 and first.costs.stats.cpu_s > 0
    assert first.costs.stats.tests_run == 6  # the wrong ones stop at their first test
    second.draw(prompted(), 8, 1)
    second.charge(prompted())
    assert second.costs.stats == first.costs.stats


class Elsewhere(Judge):
    """Begins when it is asked, as a judge in another process does."""

    def submit(self, submissions):
        judgements = self.judge(submissions)
        return lambda: judgements


def test_what_is_foreseen_is_judged_at_once_and_drawn_and_charged_as_ever(judge, pool_of, tmp_path):
    elsewhere = Elsewhere(judge.sandbox)
    pool = pool_of(judge=elsewhere)
    for _ in range(2):
        pool.prefetch(prompted())
        assert elsewhere.stats.submissions == 4
    assert not list(tmp_path.glob("*/*.json"))
    samples = pool.draw(prompted(), 8, 0)
    pool.prefetch(prompted())
    pool.charge(prompted())
    assert elsewhere.stats.submissions == 4
    other = pool_of()
    assert other.draw(prompted(), 8, 0) == samples
    other.charge(prompted())
    assert (other.costs.stats, other.counts) == (pool.costs.stats, pool.counts)


def test_a_program_from_disk_is_paid_as_when_it_was_judged(judge, pool_of):
    """The shaped reward asks whether there was a program, whose text the disk does not keep."""
    shaped = RewardConfig(kind="shaped")
    whole = Judge(judge.sandbox, JudgeConfig(early_stop=False))
    for pool in (pool_of(judge=whole, reward=shaped), pool_of(judge=whole, reward=shaped)):
        samples = pool.draw(prompted(incorrect=(*WRONG, "no program at all")), 60, 0)
        assert {sample.reward for sample in samples} == {1.0, 0.0, -0.1}
