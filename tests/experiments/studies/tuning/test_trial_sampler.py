"""The first trials are random by their number, whatever failed and however many run at once."""

import pytest

from experiments.studies.study import Arm, Study, Tuning
from experiments.studies.tuning.search_space import Range

optuna = pytest.importorskip("optuna")

from experiments.studies.tuning.tuner import Ranges, Tuner  # noqa: E402

RATE, BETA = "algo.learning_rate", "algo.beta"
SPACE = {RATE: Range(1e-5, 1e-2, log=True), BETA: Range(0.01, 3.0, log=True)}
ARMS = {name: Arm(["algo=spo"]) for name in ("a", "b")}
STUDY = Study("q", [0], ARMS, "s", tuning=Tuning(["steps=2"], 7, [8, 9]))
TRIALS = 8  # four of them random


def values(job):
    given = dict(override.partition("=")[::2] for override in job.overrides)
    return float(given[RATE]), float(given[BETA])


def proposals(failed=(), workers=1, space=SPACE, arm="a"):
    """The values of all trials, where some have failed and others have a score by their rate."""
    storage = optuna.storages.InMemoryStorage()
    tuner = Tuner(STUDY, arm, space, TRIALS, [], storage)
    jobs = tuner.begin(Ranges(storage), workers)
    made = []
    while jobs:
        made.append(job := jobs.pop(0))
        score = None if tuner.numbers[job] in failed else -abs(values(job)[0] - 1e-3)
        tuner.tell(job, score)
        if tuner.left():
            jobs.append(tuner.ask())
    return [values(job) for job in made]


@pytest.fixture(scope="module")
def whole():
    return proposals()


def random_value(number):
    """What a trial draws where it is random: the same trial of an arm with more trials."""
    storage = optuna.storages.InMemoryStorage()
    tuner = Tuner(STUDY, "a", SPACE, 40, [], storage)
    return values(tuner.begin(Ranges(storage), number + 1)[number])


def test_the_first_half_is_random_and_the_next_trial_is_not(whole):
    drawn = [random_value(number) for number in range(TRIALS)]
    assert [a == b for a, b in zip(whole, drawn, strict=True)] == [True] * 4 + [False] * 4


def test_a_failed_trial_does_not_make_a_later_one_random():
    after_failures = proposals(failed=(0, 2))
    assert after_failures[3] == random_value(3)
    assert after_failures[4] != random_value(4)


def test_trials_at_the_same_time_do_not_make_a_later_one_random():
    assert proposals(workers=3)[4] != random_value(4)


def test_random_rates_are_the_same_wherever_the_key_stands(whole):
    turned = proposals(space={BETA: SPACE[BETA], RATE: SPACE[RATE]}, arm="b")
    assert turned[:4] == whole[:4]


@pytest.mark.parametrize("number", [1, 6])
def test_a_kill_between_two_values_of_a_trial_changes_neither(number, whole, tmp_path):
    """The first value is in the file and the second is not."""
    storage = f"sqlite:///{tmp_path}/trials.sqlite"
    tuner = Tuner(STUDY, "a", SPACE, TRIALS, [], storage)
    tuner.open(Ranges(storage))
    for _ in range(number):
        job = tuner.ask()
        tuner.tell(job, -abs(values(job)[0] - 1e-3))
    tuner.space = {RATE: SPACE[RATE]}
    tuner.ask()
    resumed = Tuner(STUDY, "a", SPACE, TRIALS, [], storage)
    (job,) = resumed.begin(Ranges(storage), 1)
    assert values(job) == whole[number]
