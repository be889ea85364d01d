"""What programs came to, on disk: a judge that takes it from there says and counts the same."""

import multiprocessing
from dataclasses import asdict, replace

import pytest

from envs.judge.grading import Grade
from envs.judge.judge import Judge, JudgeConfig
from envs.judge.verdict_cache import CachedGrades, VerdictCache
from envs.problem import Verdict
from envs.sandbox.base import Execution, Outcome
from tests.envs.judge.test_judge import (
    PROGRAMS,
    RIGHT,
    SQUARE,
    WRONG_FROM_2,
    WRONG_ON_NEGATIVE,
    submissions,
)

OF_THE_MACHINE = ("cpu_s", "judged_again", "programs_recalled", "recalled_s")
KEY = ("1", "problem", "program")


def counted(judge):
    return {k: v for k, v in asdict(judge.stats).items() if k not in OF_THE_MACHINE}


def said(judgements):
    return [replace(judgement, cpu_s=0.0) for judgement in judgements]


def ran(recorder):
    return [program for batch in recorder.batches for program in batch]


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_judge_that_recalls_says_counts_and_learns_the_same_and_runs_nothing(
    recorder, verdicts, early_stop
):
    config = JudgeConfig(early_stop=early_stop)
    batches = [submissions(*PROGRAMS), submissions(WRONG_FROM_2 + "\n", RIGHT, RIGHT + "\n")]
    first, second, plain = (Judge(recorder, config, v) for v in (verdicts, verdicts, None))
    for batch in batches:
        made = said(first.judge(batch))
        assert made == said(plain.judge(batch))
    recorder.batches.clear()
    for batch in batches:
        given = said(second.judge(batch))
    assert given == made and ran(recorder) == []
    assert counted(first) == counted(second) == counted(plain)
    assert second.state_dict().keys() == first.state_dict().keys()
    assert second.state_dict()["problems"] == first.state_dict()["problems"]
    assert second.stats.programs_recalled == second.stats.programs_judged > 0
    assert second.stats.recalled_s > 0 and first.stats.programs_recalled == 0
    assert second.stats.cpu_s == pytest.approx(first.stats.cpu_s, rel=0.5, abs=0.2)


def test_a_program_is_run_where_another_order_of_tests_asks_for_what_is_not_known(
    recorder, verdicts
):
    # known to fail on test 1, and nothing of test 3, which this judge has learnt to run first
    Judge(recorder, verdicts=verdicts).judge(submissions(WRONG_FROM_2))
    judge = Judge(recorder, verdicts=verdicts)
    judge.judge(submissions(WRONG_ON_NEGATIVE))
    recorder.batches.clear()
    (other,) = judge.judge(submissions(WRONG_FROM_2))
    assert ran(recorder) == [WRONG_FROM_2] and other.detail.startswith("test 3")
    recorder.batches.clear()
    # both are known now, whichever is asked for
    again = Judge(recorder, verdicts=verdicts)
    assert again.judge(submissions(WRONG_FROM_2))[0].detail.startswith("test 1")
    again.judge(submissions(WRONG_ON_NEGATIVE))
    assert ran(recorder) == []


def test_a_syntax_error_is_one_whichever_test_comes_first(recorder, verdicts):
    broken = "```python\nprint((\n```"
    (made,) = Judge(recorder, verdicts=verdicts).judge(submissions(broken))
    judge = Judge(recorder, verdicts=verdicts)
    judge.judge(submissions(WRONG_ON_NEGATIVE))
    recorder.batches.clear()
    assert said(judge.judge(submissions(broken))) == said([made]) and ran(recorder) == []


def test_another_judge_recalls_nothing(recorder, verdicts):
    Judge(recorder, verdicts=verdicts).judge(submissions(RIGHT))
    recorder.batches.clear()
    Judge(recorder, JudgeConfig(output_limit_mb=5), verdicts).judge(submissions(RIGHT))
    other = replace(SQUARE, time_limit_s=2.0)
    Judge(recorder, verdicts=verdicts).judge(submissions(RIGHT, problem=other))
    assert ran(recorder) == [RIGHT, RIGHT]


@pytest.mark.parametrize(
    "found", [Execution(Outcome.INFRA_ERROR), Execution(Outcome.TIME_LIMIT, cpu_s=0.5, wall_s=9.0)]
)
def test_what_was_in_doubt_is_not_for_other_runs(recorder, verdicts, found):
    recorder.replace = lambda batch, job, execution: found if batch == 0 else execution
    (judgement,) = Judge(recorder, verdicts=verdicts).judge(submissions(RIGHT))
    assert judgement.verdict is Verdict.ACCEPTED
    recorder.batches.clear()
    recorder.replace = lambda batch, job, execution: execution
    Judge(recorder, verdicts=verdicts).judge(submissions(RIGHT))
    assert ran(recorder) == [RIGHT]


def test_a_file_that_fails_is_told_of_once_and_programs_are_run(recorder, tmp_path, caplog):
    file = tmp_path / "verdicts.sqlite"
    file.write_bytes(b"no data base" * 1000)
    judge = Judge(recorder, verdicts=VerdictCache(file))
    for _ in range(2):
        assert judge.judge(submissions(RIGHT))[0].verdict is Verdict.ACCEPTED
    assert len(caplog.records) == 1 and str(file) in caplog.text


def _write(file, number):
    verdicts = VerdictCache(file)
    for at in range(50):
        known = CachedGrades({number: (Grade(Verdict.ACCEPTED), 0.1)}, 0.2)
        verdicts.add([(("1", "problem", str(at)), known)])
    verdicts.close()


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    file, context = tmp_path / "verdicts.sqlite", multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(file, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    verdicts = VerdictCache(file)
    for at in range(50):
        assert verdicts.get(("1", "problem", str(at))).tests.keys() == {0, 1, 2, 3}
    verdicts.close()


def test_details_come_back_as_they_were_and_one_without_end_is_not_kept(verdicts):
    odd = Grade(Verdict.RUNTIME_ERROR, "\ud800 '\x00\n")
    wrong = Grade(Verdict.WRONG_ANSWER, "token 1", output="7\n")
    kept = {0: (odd, 0.25), 1: (wrong, 0.1)}
    known = CachedGrades(kept | {2: (Grade(Verdict.WRONG_ANSWER, "x" * 10**5), 0.5)}, 1.0)
    verdicts.add([(KEY, known)])
    assert verdicts.get(KEY) == CachedGrades(kept, 1.0)
    assert verdicts.get(("2", *KEY[1:])) is None
