"""Programs of the data set and of files, judged by the real judge; their cache on disk."""

import json

import pytest

from envs.judge.judge import Judge, JudgeConfig
from envs.problem import Judgement, Problem, Test, Verdict
from envs.reward import RewardConfig
from envs.sandbox import SandboxConfig, open_sandbox
from experiments.errors import UserError
from experiments.replay.programs import JudgementCache, JudgingCosts, OfflinePrograms, ProgramFile
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem

PROBLEM = Problem("p", "", (), ())


class Always:
    """Gives one judgement, and counts the programs."""

    version = "1"

    def __init__(self, verdict, by_wall_time):
        self.judgement = Judgement(verdict, 0, 1, 1, "x", by_wall_time=by_wall_time)
        self.judged = 0

    def judge(self, submissions):
        self.judged += len(submissions)
        return [self.judgement] * len(submissions)


@pytest.mark.parametrize(
    ("verdict", "by_wall_time", "kept"),
    [
        (Verdict.ACCEPTED, False, True),
        (Verdict.TIME_LIMIT, False, True),
        (Verdict.TIME_LIMIT, True, False),
        (Verdict.ACCEPTED, True, False),
        (Verdict.INFRA_ERROR, False, False),
    ],
)
def test_only_what_another_run_would_find_too_is_kept(tmp_path, verdict, by_wall_time, kept):
    judge = Always(verdict, by_wall_time)
    for _ in range(2):
        cache = JudgementCache(tmp_path, judge, Ledger())
        assert cache.submit(PROBLEM, {"x": "x"})() == {"x": judge.judgement}
    assert judge.judged == (1 if kept else 2)


DOUBLING = ("print(2*int(input()))", "n=int(input())\nprint(n+n)")
OTHERS = ("print(int(input())**2)", "print(input())")
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


def prompted(solutions=DOUBLING, incorrect=OTHERS):
    problem = Problem("p", "double", (), TESTS, solutions=solutions, incorrect_solutions=incorrect)
    return PromptedProblem(problem, (1, 2, 3))


def test_right_and_wrong_programs_come_in_equal_parts_and_are_paid_by_the_judge(nano, pool_of):
    tokenizer = nano[1]
    samples = pool_of().draw(prompted(), 8, 0, 1)
    assert [s.reward for s in samples].count(1.0) == 4
    for sample in samples:
        program = tokenizer.decode(list(sample.tokens), skip_special_tokens=True)
        assert (program in DOUBLING) == (sample.reward == 1.0)
        assert sample.tokens[-1] == tokenizer.eos_token_id
        assert sample.offline


def test_programs_that_do_not_fit_are_left_out(nano, pool_of):
    assert pool_of(max_tokens=2).draw(prompted(), 4, 0) == []
    assert pool_of().draw(prompted((), ()), 4, 0) == []


def test_programs_are_kept_apart_by_structure_and_not_by_writing(pool_of):
    again = ("print(2 * int(input()))  # twice", "m = int(input())\nprint(m + m)")
    pool, prompt = pool_of(), prompted((*DOUBLING, *again), ())
    assert len({s.tokens for s in pool.draw(prompt, 50, 0)}) == 2
    pool.charge(prompt)
    assert pool.counts == {"used": 2, "the same but for its writing": 2}


def test_at_most_so_many_of_each_kind(pool_of):
    many = tuple(f"print(2*int(input())+{i}*0)" for i in range(9))
    pool = pool_of(per_problem=3)
    drawn = pool.draw(prompted(many, OTHERS), 60, 0)
    assert len({s.tokens for s in drawn if s.accepted}) == 3
    assert len({s.tokens for s in drawn if not s.accepted}) == 2
    pool.charge(prompted(many, OTHERS))
    assert pool.counts["beyond train.offline_per_problem"] == 6
    assert {s.tokens for s in pool_of(per_problem=3).draw(prompted(many, OTHERS), 60, 5)} == {
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
        samples = pool.draw(prompted(incorrect=(*OTHERS, "no program at all")), 60, 0)
        assert {sample.reward for sample in samples} == {1.0, 0.0, -0.1}


DOUBLE = PromptedProblem(Problem("double", "", (), (Test("3\n", "6\n"),)), (1, 2))
RIGHT, WRONG = "print(2*int(input()))", "print(input())"


@pytest.fixture
def file_of(nano, judge, tmp_path):
    def make(*lines, needs_logps=False, max_tokens=64):
        path = tmp_path / "theirs.jsonl"
        path.write_text("\n".join(map(str, lines)) + "\n")
        return ProgramFile(
            path,
            judgement_cache=JudgementCache(tmp_path / "cache", judge, Ledger()),
            tokenizer=nano[1],
            reward=RewardConfig(),
            max_tokens=max_tokens,
            format_response=lambda program: f"```python\n{program}\n```",
            needs_logps=needs_logps,
        )

    return make


def line(**row):
    return json.dumps({"problem": "double"} | row)


def test_programs_responses_and_tokens_are_judged_and_paid(file_of, nano):
    tokenizer = nano[1]
    ids = [*tokenizer(RIGHT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    told = [-0.5] * len(ids)
    rows = [line(program=RIGHT), line(response=WRONG), line(tokens=ids, logprobs=told)]
    file = file_of(*rows, line(problem="another", program=RIGHT))
    assert file.problems.keys() == {"double", "another"}
    samples = file.samples_for(DOUBLE)
    assert [s.reward for s in samples] == [1.0, 0.0, 1.0]
    assert [s.offline for s in samples] == [True, True, False]
    assert samples[2].tokens == tuple(ids)
    assert samples[0].judgement.program == RIGHT
    assert {(s.origin.source, s.origin.run) for s in samples} == {("file", "theirs.jsonl")}
    text = tokenizer.decode(list(samples[0].tokens), skip_special_tokens=True)
    assert text == f"```python\n{RIGHT}\n```"


def test_what_cannot_be_used_is_left_out_and_counted(file_of):
    file = file_of(line(program=RIGHT), line(response=RIGHT, logprobs=[-1.0]), max_tokens=12)
    assert file.samples_for(DOUBLE) == []
    assert sum(file.left_out.values()) == 2


def test_log_probs_after_another_prompt_are_left_out(file_of, nano):
    ids = nano[1](RIGHT, add_special_tokens=False)["input_ids"]
    rows = [
        line(tokens=ids, logprobs=[-0.5] * len(ids), prompt=[*DOUBLE.tokens, *more])
        for more in ([], [3])
    ]
    file = file_of(*rows, line(tokens=ids, prompt=[3]))
    assert [s.logps is None for s in file.samples_for(DOUBLE)] == [False, True]
    assert file.left_out == {"log-probs after another prompt than this run's": 1}


REFUSED = [
    "{",
    line(program=RIGHT, logprobs=[float("nan")]),
    line(program=RIGHT, logprobs=[0.5]),
    line(program=RIGHT, logprobs=["a"]),
    line(program=RIGHT, logprobs=3),
    line(tokens=[10**9]),
    line(tokens=[-1]),
    line(tokens=[5.7]),
    line(program=RIGHT, prompt="ab"),
    line(tokens="ab"),
    line(program=7),
    line(response=None),
    line(program="\ud83d"),
    line(),
    line(program=RIGHT, response=RIGHT),
    json.dumps({"program": RIGHT}),
]


@pytest.mark.parametrize("bad", REFUSED)
def test_a_line_that_is_wrong_is_named(bad, file_of):
    with pytest.raises(UserError, match=r"theirs\.jsonl.*: line 2: ") as refused:
        file_of(line(program=RIGHT), bad)
    assert "\n" not in str(refused.value)


def test_what_needs_log_probs_refuses_a_line_without(file_of):
    with pytest.raises(UserError, match=r"line 1 has no logprobs.*missing_logprobs=reference"):
        file_of(line(program=RIGHT), needs_logps=True)
