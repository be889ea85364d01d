"""Tuning without training: no trial is lost or done twice, fresh seeds decide, ranges widen."""

import math

import pytest

from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.studies.study import Arm, Study, Tuning
from experiments.studies.tuning.candidates import Candidate
from experiments.studies.tuning.search_space import Range

optuna = pytest.importorskip("optuna")

from experiments.studies.tune import tune_all  # noqa: E402
from experiments.studies.tuning.tuner import Ranges, Tuner  # noqa: E402

RATE = "algo.learning_rate"
SPACE = {
    RATE: Range(1e-5, 1e-2, log=True),
    "algo.kl_coef": Range(0.001, 1.0, log=True, zero=True),
    "algo.kl": Range(choices=["k1", "k3"]),
}
ARMS = {"grpo": Arm(["algo=grpo"]), "spo": Arm(["algo=spo"])}
SEEDS = [8, 9, 10]
STUDY = Study("q", [0], ARMS, "s", tuning=Tuning(["steps=2"], 7, SEEDS))


class Killed(Exception):
    pass


def tuner(folder, arm="grpo", trials=6, space=SPACE):
    return Tuner(STUDY, arm, space, trials, [], folder)


def ranges(folder):
    return Ranges(folder)


def in_memory():
    return optuna.storages.InMemoryStorage()


@pytest.fixture
def store():
    return in_memory()


def rate_of(job):
    return float(next(o for o in job.overrides if o.startswith(RATE)).partition("=")[2])


def score_near(best_rate):
    """A score that falls with the distance from the best rate, in decades."""
    return lambda job: 0.5 - 0.1 * abs(math.log10(rate_of(job) / best_rate))


def fake_runs(score, done, kill_after=None):
    """Instead of processes: each run has `score(job)`; a kill comes after so many runs."""

    def run(tuner, jobs):
        jobs = list(jobs)
        while jobs:
            if len(done) == kill_after:
                raise Killed
            job = jobs.pop(0)
            done.append(job)
            tuner.tell(job, score(job), f"runs/{job.label}")
            if tuner.left():
                jobs.append(tuner.ask())

    return run


def tune(folder, score, arms=("grpo",), kill_after=None, trials=6, space=SPACE):
    done, said = [], []
    tuners = [tuner(folder, arm, trials, space) for arm in arms]
    run = fake_runs(score, done, kill_after)
    tune_all(tuners, ranges(folder), 2, run, said.append)
    return tuners, done, said


def test_trials_are_proposed_once_and_taken_up_after_a_kill(tmp_path):
    store = f"sqlite:///{tmp_path}/trials.sqlite"
    first = tuner(store)
    jobs = first.begin(ranges(store), 2)
    first.tell(jobs[0], 0.25)
    jobs.append(first.ask())
    del first  # killed: two trials were running

    second = tuner(store)
    taken_up = second.begin(ranges(store), 2)
    assert [job.overrides for job in taken_up] == [job.overrides for job in jobs[1:]]
    assert [job.label for job in taken_up] == ["grpo-s7-t001", "grpo-s7-t002"]
    fake_runs(lambda job: 0.1, [])(second, taken_up)
    rows = second.table()
    assert [(row["trial"], row["state"]) for row in rows] == [(n, "complete") for n in range(6)]
    assert tuner(store).begin(ranges(store), 2) == []


def test_the_first_rates_are_the_same_for_every_arm_whatever_else_it_tunes(store):
    space = {RATE: SPACE[RATE], "algo.beta": Range(0.01, 3.0, log=True)}
    a, b = tuner(store, trials=8), tuner(store, "spo", 8, space)
    first, second = a.begin(ranges(store), 4), b.begin(ranges(store), 4)
    assert [rate_of(job) for job in first] == [rate_of(job) for job in second]
    assert len({rate_of(job) for job in first}) == 4


def test_what_ppo_at_its_best_needs_can_be_tuned(store):
    space = {
        "algo.critic_learning_rate": Range(1e-5, 1e-2, log=True),
        "algo.lam": Range(choices=[0.95, 1.0]),
        "algo.critic": Range(choices=["separate", "shared"]),
        "train.epochs": Range(choices=[1, 4]),
        "train.minibatches": Range(choices=[4]),
    }
    study = Study("q", [0], {"ppo": Arm(["algo=ppo"])}, "s", tuning=STUDY.tuning)
    jobs = Tuner(study, "ppo", space, 6, [], store).begin(ranges(store), 6)
    configs = [config_of(job.overrides) for job in jobs]
    assert len({config.algo.critic_rate for config in configs}) == 6
    assert {config.algo.critic for config in configs} == {"separate", "shared"}
    assert {config.algo.lam for config in configs} == {0.95, 1.0}
    assert {(c.train.epochs, c.train.minibatches) for c in configs} == {(1, 4), (4, 4)}


def test_a_weight_is_exactly_zero_in_some_trials_and_in_its_range_in_others(store):
    _, done, _ = tune(store, lambda job: 0.1, trials=12)
    weights = [o.partition("=")[2] for j in done for o in j.overrides if "kl_coef" in o]
    assert "0" in weights and all(w == "0" or 0.001 <= float(w) <= 1 for w in weights)
    assert any(w != "0" for w in weights)


def test_a_failed_trial_counts_and_is_no_candidate(store):
    held = tuner(store, trials=2)
    one, two = held.begin(ranges(store), 2)
    held.tell(one, None)
    held.tell(two, 0.1)
    assert [row["state"] for row in held.table()] == ["fail", "complete"]
    assert (held.left(), [each.trial for each in held.best()]) == (0, [1])


def test_trials_beyond_the_number_asked_for_are_no_candidates(store):
    """A third more trials for one arm would be a third more chances for it."""

    def score(job):
        return int(job.trial[1:]) / 10

    space = {"algo.kl": SPACE["algo.kl"]}
    (more,), *_ = tune(store, score, trials=8, space=space)
    assert [each.trial for each in more.best()] == [7, 6, 5]
    (held,), done, _ = tune(store, score, trials=6, space=space)
    assert [each.trial for each in held.best()] == [5, 4, 3]
    assert {job.trial for job in done} == {"t004", "t003"}  # 5 has its re-scores


def test_trials_of_other_settings_are_not_mixed(store):
    Tuner(STUDY, "grpo", SPACE, 6, ["train.lag=2"], store).open(ranges(store))  # only planned
    tuner(store).begin(ranges(store), 1)
    with pytest.raises(UserError, match="choose another output_dir"):
        Tuner(STUDY, "grpo", SPACE, 6, ["train.lag=1"], store)
    with pytest.raises(UserError, match="choose another output_dir"):
        tuner(store, space=SPACE | {RATE: Range(1e-4, 1e-2, log=True)})


def test_fresh_seeds_decide_and_the_trial_s_own_score_does_not_count(store):
    def score(job):
        """Trials grow with their number; on fresh seeds the third best of them is best."""
        number = int(job.trial[1:])
        return number / 10 if job.seed == 7 else {3: 0.9, 4: 0.2, 5: 0.1}[number] + job.seed / 1e3

    (held,), done, _ = tune(store, score, space={"algo.kl": SPACE["algo.kl"]})
    assert [each.trial for each in held.best()] == [5, 4, 3]
    assert [each.trial for each in held.ranking()] == [3, 4, 5]
    assert held.ranking()[0].mean == pytest.approx(0.909)
    rescored = [job for job in done if job.seed != 7]
    assert sorted((job.trial, job.seed) for job in rescored) == [
        (f"t00{trial}", seed) for trial in (3, 4, 5) for seed in SEEDS
    ]
    assert held.table()[6] == {
        "run": "rescore",
        "trial": 3,
        "seed": 8,
        "state": "complete",
        "score": pytest.approx(0.908),
        "algo.kl": held.ranking()[0].values["algo.kl"],
    }


def test_a_re_score_has_the_values_of_its_trial_and_another_seed(store):
    _, done, _ = tune(store, score_near(3e-4))
    trials = {job.trial: job.overrides for job in done if job.seed == 7}
    rescored = [job for job in done if job.seed != 7]
    assert len(rescored) == 9
    assert all(job.overrides == trials[job.trial] for job in rescored)


@pytest.mark.parametrize("kill_after", [0, 3, 6, 7, 11, 14])
def test_a_kill_anywhere_changes_nothing_and_repeats_nothing(kill_after):
    """In the trials, between trials and re-scores (6), among the re-scores."""
    (whole,), expected, _ = tune(in_memory(), score_near(3e-4))
    killed = in_memory()
    with pytest.raises(Killed):
        tune(killed, score_near(3e-4), kill_after=kill_after)
    (resumed,), rest, _ = tune(killed, score_near(3e-4))
    assert len(rest) == len(expected) - kill_after
    assert resumed.table() == whole.table()


def test_a_winner_at_an_edge_widens_the_range_for_all_arms_and_adds_trials_to_all(store):
    def score(job):
        return score_near(1e-1 if job.arm == "grpo" else 3e-4)(job)

    tuners, done, said = tune(store, score, arms=("grpo", "spo"), trials=24)
    held = ranges(store)
    first = held.widenings[0]
    assert (first["round"], first["key"], first["side"]) == (1, RATE, "high")
    assert first["arms"] == ["grpo"]
    high = sum((w["key"], w["side"]) == (RATE, "high") for w in held.widenings)
    wide = SPACE[RATE].widened("high", high)
    for each in tuners:
        assert each.space[RATE].high == wide.high
        trials = [row for row in each.table() if row["run"] == "trial"]
        assert len(trials) == 24 + 8 * held.rounds
        assert [row["trial"] for row in trials] == list(range(len(trials)))
    assert any("algo.learning_rate widens at its high edge for every arm" in line for line in said)
    assert max(rate_of(job) for job in done) > 1e-2


def test_ranges_widen_once(store):
    space = {RATE: SPACE[RATE]}
    (held,), _, said = tune(store, score_near(1e3), trials=9, space=space)
    found = ranges(store)
    assert (found.rounds, held.target) == (1, 9 + 3)
    assert held.space[RATE].high == SPACE[RATE].widened("high").high
    assert said[-1] == "ranges have widened once and widen no more"


def test_a_winner_of_zero_widens_nothing(store):
    space = {"algo.kl_coef": SPACE["algo.kl_coef"]}
    score = lambda job: 0.5 - float(job.overrides[-1].partition("=")[2])  # noqa: E731
    (held,), *_ = tune(store, score, space=space, trials=9)
    assert held.ranking()[0].values == {"algo.kl_coef": 0.0}
    assert ranges(store).rounds == 0


def test_a_kill_after_a_widening_goes_on_with_the_wider_range(store):
    space = {RATE: SPACE[RATE]}
    (whole,), expected, _ = tune(first := in_memory(), score_near(1e3), trials=6, space=space)
    at = next(i for i, job in enumerate(expected) if job.trial == "t007")  # of the second round
    with pytest.raises(Killed):
        tune(store, score_near(1e3), kill_after=at, trials=6, space=space)
    (resumed,), *_ = tune(store, score_near(1e3), trials=6, space=space)
    assert resumed.table() == whole.table()
    assert ranges(store).widenings == ranges(first).widenings


def test_ties_are_within_one_standard_error_of_the_difference():
    best = Candidate(0, 0.0, {}, {8: 0.50, 9: 0.52, 10: 0.54})
    assert (best.mean, best.standard_error) == (pytest.approx(0.52), pytest.approx(0.02 / 3**0.5))
    near = Candidate(1, 0.0, {}, {8: 0.49, 9: 0.51, 10: 0.53})  # .0100 of .0163
    far = Candidate(2, 0.0, {}, {8: 0.48, 9: 0.50, 10: 0.52})  # .0200
    assert best.ties_with(near) and not best.ties_with(far)


def test_what_is_left_to_run_is_counted_before_and_while_it_runs(store):
    held = tuner(store)
    assert held.runs_left() == 6 + 9
    with pytest.raises(Killed):
        tune(store, score_near(3e-4), kill_after=8)
    assert tuner(store).runs_left() == 7
    tune(store, score_near(3e-4))
    assert tuner(store).runs_left() == 0
