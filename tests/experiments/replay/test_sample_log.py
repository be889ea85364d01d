"""What a run keeps of its samples, and what a later run makes of them."""

import json
from dataclasses import asdict, replace

import pytest
from omegaconf import OmegaConf

from envs.reward import RewardConfig
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.buffer import ReplayBuffer, check_source
from experiments.replay.programs import JudgingCosts
from experiments.replay.sample_log import EarlierRun, check_same_settings, samples_of, table_of
from experiments.rollout.conversations import dialogue_of
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem, Turn
from experiments.trainer import check_base
from tests.experiments.compose import config as config_of
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
    assert [*sample_log.files(run)] == [1, 2]
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
    assert [*sample_log.files(run)] == [1]
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


TALK = ("task.turns=3", "task.max_observation_tokens=96")


@pytest.fixture
def recorded(tmp_path, nano):
    """A function that writes the folder of a run with these overrides, and returns it."""

    def of(*overrides):
        config = config_of(*overrides)
        (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(asdict(config)))
        facts = {"observations_hash": hash_of(nano, config)}
        (tmp_path / "run.json").write_text(json.dumps(facts))
        return tmp_path

    return of


def hash_of(nano, config):
    dialogue = dialogue_of(config, nano[1], config.task.turns, 1)
    return dialogue and dialogue.digest


def check(run, nano, *overrides):
    config = config_of(*overrides)
    check_same_settings(run, config, hash_of(nano, config))


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (TALK, ("task.turns=2", TALK[1]), "its task.turns is 3, but 2 here"),
        (TALK, (), "its task.turns is 3, but 1 here; use the same value"),
        ((), TALK, "its task.turns is 1, but 3 here"),
        (TALK, (*TALK, "task.feedback=withheld"), "its task.feedback is tests, but"),
        (TALK, TALK[:1], "its task.max_observation_tokens is 96, but"),
        (TALK, (*TALK, "train.temperature=0.7"), "its train.temperature is 1.0, but"),
        # whose responses begin with tokens of the data set's program, or of another response
        (("algo=ppo", "train.reset_share=0.5"), (), "its train.reset_share is 0.5, but 0.0"),
        (("algo=segment_tree",), (), r"its algo.branches is \[2, 2, 2\], but None"),
    ],
)
def test_an_earlier_run_with_other_contexts_is_refused_in_a_line(recorded, nano, before, now, told):
    run = recorded(*before)
    check(run, nano, *before)
    with pytest.raises(UserError, match=told) as refused:
        check(run, nano, *now)
    assert "\n" not in str(refused.value)


def test_observations_with_another_template_are_refused_in_a_line(recorded, nano, tmp_path):
    template = tmp_path / "feedback.jinja"
    template.write_text("Failed: {{ failure }}.")
    own = (*TALK, f"task.feedback_prompt={template}")
    run = recorded(*own)
    check(run, nano, *own)
    with pytest.raises(UserError, match="its observations_hash"):
        check(run, nano, *TALK)
    template.write_text("It failed: {{ failure }}.")
    with pytest.raises(UserError, match="its observations_hash"):
        check(run, nano, *own)


class Recorded:
    """The facts of run.json."""

    def __init__(self, **info):
        self.info = info

    def describe(self, **facts):
        self.info |= facts


def test_a_resumed_run_has_the_texts_that_it_began_with():
    before = {"weights": "w", "prompts_hash": "p", "observations_hash": None}
    check_base(Recorded(**before, data_hash="of a checkpoint without it"), before)
    for fact, key in {"prompts_hash": "task.prompt", "observations_hash": "task.feedback"}.items():
        records = Recorded(**before | {fact: "another"})
        with pytest.raises(UserError, match=rf"^{key}.*{fact} another, but the checkpoint was"):
            check_base(records, before)
        assert records.info == before


def test_a_response_of_another_prompt_leaves_no_buffer():
    config = config_of("train.replay_share=0.5")
    buffer = ReplayBuffer(
        config.replay, RewardConfig(), lambda: 0, JudgingCosts(Ledger(), "replayed_programs")
    )
    buffer.add_batch([sample(P, 1)], 1)
    assert len(buffer.draw(P, 1, 0)) == 1
    other = PromptedProblem(P.problem, (*P.tokens, 9))
    with pytest.raises(UserError, match="a response to p was generated for another prompt"):
        buffer.draw(other, 1, 0)


def test_a_response_whose_turns_or_log_probs_do_not_add_up_is_refused():
    talk = replace(sample(P, 7), tokens=(7, 8, 9), logps=(-1.0, 0.0, -1.0))
    whole = replace(talk, turns=(Turn(1, 1), Turn(1)))
    (read,) = samples_of(table_of([whole], 1), [P], RewardConfig())
    assert (read.tokens, read.logps, read.own) == (whole.tokens, whole.logps, [True, False, True])
    for wrong, told in (
        (replace(talk, turns=(Turn(1, 2), Turn(1))), "3 tokens, but turns of 4"),
        (replace(whole, logps=(-1.0,)), "3 tokens, but log-probs of 1"),
    ):
        with pytest.raises(UserError, match=f"run-a, a response to p: it has {told}"):
            samples_of(table_of([wrong], 1), [P], RewardConfig())
