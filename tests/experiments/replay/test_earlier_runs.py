"""What a run keeps of its samples, and what another makes of them."""

from dataclasses import replace

import pytest

from envs.reward import RewardConfig
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.sample_log import samples_of
from experiments.replay.sources import EarlierRun, check_source
from tests.experiments.rollout.stored import prompt, sample

P, Q = prompt("p"), prompt("q")


@pytest.fixture
def run(tmp_path):
    """Two batches; the second replays a response of the first, beside a program of a file."""
    first = [sample(P, 1, step=1), sample(P, 2, 0.0, step=1), sample(Q, 3, step=1)]
    sample_log.write(tmp_path, 1, first, "judge 1")
    theirs = sample(P, 9, source="file", logps=None)
    second = [sample(P, 4, step=2), replace(first[0], replayed=0), theirs]
    sample_log.write(tmp_path, 2, second, "judge 1")
    return tmp_path


def test_what_is_read_is_what_was_written(run):
    samples = samples_of(sample_log.read(run, 1), [P, P, Q], RewardConfig())
    assert samples == [sample(P, 1), sample(P, 2, 0.0), sample(Q, 3)]
    assert sample_log.steps(run) == [1, 2]
    assert len(sample_log.read_all(run)) == 6


def test_an_earlier_run_gives_what_its_policy_wrote_once_each(run):
    earlier = EarlierRun(run, "judge 1", RewardConfig())
    assert earlier.problems.keys() == {"p", "q"}
    found = earlier.samples_for(P)
    assert [s.tokens[0] for s in found] == [1, 2, 4]
    assert {(s.origin.source, s.origin.run) for s in found} == {("run", "run-a")}
    assert earlier.samples_for(prompt("r")) == []
    assert not earlier.left_out


def test_what_its_reward_hangs_on_must_be_as_it_was(run):
    assert (
        EarlierRun(run, "judge 2", RewardConfig()).rejection_reason(P)
        == "judged by another judge version"
    )
    other = replace(P, tokens=(1, 2, 3))
    earlier = EarlierRun(run, "judge 1", RewardConfig())
    assert "another prompt" in earlier.rejection_reason(other)
    assert earlier.samples_for(other) == []
    assert sum(earlier.left_out.values()) == 3
    assert earlier.rejection_reason(P) is None
    tests = replace(P, problem=replace(P.problem, time_limit_s=9.0))
    assert earlier.rejection_reason(tests) == "the problem has other tests"


def test_batches_after_a_checkpoint_are_cut(run):
    before = sample_log.digest(run)
    sample_log.truncate(run, 1)
    assert sample_log.steps(run) == [1]
    assert sample_log.digest(run) != before
    sample_log.truncate(run / "nowhere", 0)


def test_the_digest_is_of_what_stands_there_and_a_cut_batch_is_named(run):
    before, part = sample_log.digest(run), run / "samples" / "step-00000001.arrow"
    whole = part.read_bytes()
    at = whole.rindex(b"run-a")
    part.write_bytes(whole[:at] + b"run-b" + whole[at + 5 :])
    assert sample_log.digest(run) != before
    part.write_bytes(whole[:100])
    with pytest.raises(UserError, match=r"step-00000001\.arrow: cannot be read"):
        EarlierRun(run, "judge 1", RewardConfig())


def test_problems_that_this_run_has_not_are_counted_and_only_they_are_an_error(run):
    earlier = EarlierRun(run, "judge 1", RewardConfig())
    check_source(earlier, [P])
    assert list(earlier.left_out.values()) == [earlier.problems["q"]]
    with pytest.raises(UserError, match="none of its problems is in this run's train split"):
        check_source(earlier, [prompt("r")])
