"""Re-scores decide: whose count, what a failed one does, and that every arm has equally many."""

import pytest

from experiments.studies.study import Arm, Study, Tuning
from experiments.studies.tuning.search_space import Range

optuna = pytest.importorskip("optuna")

from experiments.studies.tune import tune_all  # noqa: E402
from experiments.studies.tuning.tuner import Ranges, Tuner  # noqa: E402

SEEDS = [8, 9]
ARMS = {"grpo": Arm(["algo=grpo"]), "spo": Arm(["algo=spo"])}
STUDY = Study("q", [0], ARMS, "s", tuning=Tuning(["steps=2"], 7, SEEDS))
RATE = "algo.learning_rate"
SPACE = {RATE: Range(1e-5, 1e-2, log=True)}


@pytest.fixture
def store():
    return optuna.storages.InMemoryStorage()


def tuner(store, arm="grpo", trials=6):
    return Tuner(STUDY, arm, SPACE, trials, [], store)


def run_with(score, done, stop_after=None):
    """Instead of processes: the score of each run (None: it failed); ends after so many runs."""

    def run(held, jobs):
        jobs = list(jobs)
        while jobs:
            if len(done) == stop_after:
                raise KeyboardInterrupt
            done.append(job := jobs.pop(0))
            held.tell(job, score(job), f"runs/{job.label}")
            if held.left():
                jobs.append(held.ask())

    return run


def one_round(held, store, score, done, stop_after=None):
    """The trials and re-scores of the present round; returns the lines that were said."""
    said = []
    run = run_with(score, done, stop_after)
    tune_all([held], Ranges(store), 1, run, said.append, whole=False)
    return said


def number_of(job):
    return int(job.trial[1:4])


def rescored(done):
    return sorted((number_of(job), job.seed) for job in done if job.seed != 7)


def test_a_re_scored_leader_stays_when_later_trials_have_higher_single_scores(store):
    """Trials 6 and 7 have luck with their single seed and push trial 3 out of the best three."""

    def score(job):
        number = number_of(job)
        return number / 10 if job.seed == 7 else {3: 0.5}.get(number, 0.1 + job.seed / 1000)

    done = []
    held = tuner(store)
    one_round(held, store, score, done)
    assert held.ranking()[0].trial == 3
    Ranges(store).widen({"grpo": {RATE: "high"}})  # two more trials
    one_round(held, store, score, done)
    assert held.target == 8
    assert rescored(done) == [(trial, seed) for trial in (3, 4, 5, 6, 7) for seed in SEEDS]
    assert held.ranking()[0].trial == 3
    assert held.ranking()[0].mean == pytest.approx(0.5)
    assert len(held.ranking()) == 5


def test_an_earlier_call_for_fewer_trials_gives_an_arm_no_further_candidate(store):
    """GRPO's best of six were run again; with twelve trials they are no longer among its best."""
    score = lambda job: number_of(job) / 100  # noqa: E731
    one_round(tuner(store), store, score, [])
    arms = [tuner(store, arm, trials=12) for arm in ARMS]
    for held in arms:
        one_round(held, store, score, [])
    assert [[each.trial for each in held.ranking()] for held in arms] == [[11, 10, 9]] * 2


def test_a_later_call_for_fewer_trials_has_the_candidates_of_its_own_rounds(store):
    """Two widenings were stored with twelve trials (16, 20); with six they are 8 and 10."""
    score = lambda job: number_of(job) / 100  # noqa: E731
    held, ranges = tuner(store, trials=12), Ranges(store)
    one_round(held, store, score, [])
    for _ in range(2):
        ranges.widen({"grpo": {RATE: "high"}})
        one_round(held, store, score, [])
    assert [each.trial for each in held.best()] == [19, 18, 17, 15, 14, 13, 11, 10, 9]
    arms = [tuner(store, arm) for arm in ARMS]
    for each in arms:
        one_round(each, store, score, [])
    of_rounds = [9, 8, 7, 6, 5, 4, 3]
    assert [[each.trial for each in held.ranking()] for held in arms] == [of_rounds] * 2


def test_a_re_score_that_fails_once_runs_again_and_counts(store):
    failures = {(5, 9): 1, (4, 8): 1}

    def score(job):
        if failures.get(key := (number_of(job), job.seed)):
            failures[key] -= 1
            return None
        return number_of(job) / 10

    done, held = [], tuner(store)
    one_round(held, store, score, done)
    assert rescored(done) == [(3, 8), (3, 9), (4, 8), (4, 8), (4, 9), (5, 8), (5, 9), (5, 9)]
    assert [each.trial for each in held.ranking()] == [5, 4, 3]
    assert held.rescores_left() == []


def test_the_next_best_trial_takes_the_place_of_one_whose_re_score_fails_twice(store):
    def score(job):
        return None if (number_of(job), job.seed) == (5, 9) else number_of(job) / 10

    done, held = [], tuner(store)
    said = one_round(held, store, score, done)
    assert [each.trial for each in held.ranking()] == [4, 3, 2]
    assert rescored(done).count((5, 9)) == 2 and rescored(done).count((5, 8)) == 1
    assert any("trial 5 is left out: a further run failed 2 times" in line for line in said)
    again = []
    one_round(tuner(store), store, score, again)  # the same command: nothing is left to run
    assert again == []


def test_every_failure_counts_after_a_kill_too(store):
    def score(job):
        return None if (number_of(job), job.seed) == (5, 8) else number_of(job) / 10

    done = []
    with pytest.raises(KeyboardInterrupt):  # six trials, and trial 5's first re-score
        one_round(tuner(store), store, score, done, stop_after=7)
    assert rescored(done) == [(5, 8)]
    one_round(tuner(store), store, score, done)
    assert rescored(done).count((5, 8)) == 2


def test_where_every_re_score_fails_there_is_no_winner_and_an_end(store):
    done, held = [], tuner(store)
    one_round(held, store, lambda job: number_of(job) / 10 if job.seed == 7 else None, done)
    assert held.ranking() == []
    assert len(rescored(done)) == 6 * len(SEEDS) * 2


LONGER = ["steps=9"]


def with_longer_runs(store, longer=3, rescored=2):
    tuning = Tuning(["steps=2"], 7, SEEDS, LONGER, longer=longer, rescored=rescored)
    return Tuner(Study("q", [0], ARMS, "s", tuning=tuning), "grpo", SPACE, 6, [], store)


def is_longer(job):
    return job.overrides[-2] == "steps=9"  # the last one is the rate


def test_longer_runs_choose_which_trials_get_the_fresh_seeds(store):
    held, done = with_longer_runs(store), []
    score = {number: number / 10 for number in range(6)}
    # longer runs turn the order of the trials around
    said = one_round(
        held,
        store,
        lambda j: (1 - score[number_of(j)]) if is_longer(j) else score[number_of(j)],
        done,
    )
    longer = [(number_of(job), job.seed) for job in done if is_longer(job) and job.seed == 7]
    assert longer == [(5, 7), (4, 7), (3, 7)]  # the best trials
    assert rescored(done) == [(3, 8), (3, 9), (4, 8), (4, 9)]  # the best of their longer runs
    assert all(is_longer(job) for job in done if job.seed != 7)
    assert [each.trial for each in held.ranking()] == [3, 4]
    kinds = [row["run"] for row in held.table()]
    assert [kinds.count(kind) for kind in ("trial", "longer", "rescore")] == [6, 3, 4]
    assert said[1:3] == [
        "grpo: trials 3, 4, 5 over more steps, 3 runs to do",
        "grpo: trials 3, 4 on fresh seeds, 4 runs to do",
    ]


def test_a_killed_longer_run_is_done_again_and_no_other(store):
    done = []
    with pytest.raises(KeyboardInterrupt):
        one_round(with_longer_runs(store), store, lambda job: 0.5, done, stop_after=7)
    held = with_longer_runs(store)
    assert (held.trials_left(), len(held.longer_left()), held.runs_left()) == (0, 2, 6)
    one_round(held, store, lambda job: 0.5, done)
    assert len(done) == len(set(done)) == 6 + 3 + 4
    assert held.runs_left() == 0


def test_the_next_trial_takes_the_place_of_one_whose_longer_run_fails_twice(store):
    held, done = with_longer_runs(store), []
    score = {number: number / 10 for number in range(6)}
    fails = lambda job: None if is_longer(job) and number_of(job) == 5 else score[number_of(job)]  # noqa: E731
    one_round(held, store, fails, done)
    longer = [number_of(job) for job in done if is_longer(job) and job.seed == 7]
    assert sorted(longer) == [2, 3, 4, 5, 5]
    assert held.left_out() == [5]
    assert [each.trial for each in held.ranking()] == [4, 3]


def test_runs_of_another_length_are_not_taken_for_these(store):
    one_round(tuner(store), store, lambda job: 0.5, [])  # short re-scores
    held, done = with_longer_runs(store), []
    assert (held.trials_left(), held.runs_left()) == (0, 7)
    one_round(held, store, lambda job: 0.5, done)
    assert len(done) == 7 and all(is_longer(job) for job in done)
