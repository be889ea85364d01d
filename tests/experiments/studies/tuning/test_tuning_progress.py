"""What is said after each run of tuning."""

import pytest

from experiments.studies.study import Arm, Study, Tuning
from experiments.studies.tuning.search_space import Range

optuna = pytest.importorskip("optuna")

from experiments.studies.tuning.tuner import Ranges, Tuner  # noqa: E402
from experiments.studies.tuning.tuning_progress import Progress  # noqa: E402

SPACE = {"algo.learning_rate": Range(1e-5, 1e-2, log=True)}
ARMS = {"grpo": Arm(["algo=grpo"]), "spo": Arm(["algo=spo"])}
STUDY = Study("q", [0], ARMS, "s", tuning=Tuning(["steps=2"], 7, [8, 9]))


def test_a_line_has_the_score_the_best_the_counts_and_the_time_left_of_all_arms():
    store, now = optuna.storages.InMemoryStorage(), [0.0]
    tuners = [Tuner(STUDY, arm, SPACE, 4, [], store) for arm in ARMS]
    for each in tuners:
        each.open(Ranges(store))
    held, progress = tuners[0], Progress(tuners, lambda: now[0])

    def end(job, score, seconds):
        now[0] += seconds
        held.tell(job, score)
        return progress.line(held, job, score, 0)

    first, second, third, fourth = held.begin(Ranges(store), 4)
    assert end(first, None, 60) == (
        "no score, no best yet; 1 of 4 trials of grpo; runs of all arms left: 19, about 19 min"
    )
    assert end(second, 0.25, 180) == (
        "score 0.2500, best 0.2500 (trial 1); 2 of 4 trials of grpo; "
        "runs of all arms left: 18, about 36 min"
    )
    end(third, 0.5, 0)
    end(fourth, 0.125, 0)
    again = held.rescores_left()
    assert [held.numbers[job] for job in again] == [2, 2, 1, 1, 3, 3]
    assert "score 0.4000, no candidate has all its re-scores yet; re-scores of grpo left: 5" in end(
        again[0], 0.4, 0
    )
    assert "score 0.5000, best mean 0.4500 (trial 2); re-scores of grpo left: 4" in end(
        again[1], 0.5, 0
    )


def test_runs_that_are_still_going_count_as_half_done():
    store, now = optuna.storages.InMemoryStorage(), [0.0]
    held = Tuner(STUDY, "grpo", SPACE, 4, [], store)
    held.open(Ranges(store))
    progress = Progress([held], lambda: now[0])
    first, *_ = held.begin(Ranges(store), 3)
    now[0] = 120.0  # half a run a minute; of nine left, two are half done
    held.tell(first, 0.1)
    assert progress.line(held, first, 0.1, 2).endswith("runs of all arms left: 9, about 8 min")
