"""What re-scores are worth, in the noise of the first study's trials."""

import pytest

from tests.experiments.studies.simulation import ONE_KEY, TRIALS, noise, simulate


def test_the_noise_is_that_of_the_first_study_s_trials():
    assert (noise(ONE_KEY), noise(TRIALS)) == pytest.approx((0.027, 0.038), abs=5e-4)


@pytest.mark.parametrize("sd", [0.019, 0.027, 0.038])
def test_re_scores_pick_better_and_do_not_flatter_the_winner(sd):
    by_trial, by_rescore = simulate(sd, 2000)
    assert by_rescore.best > by_trial.best
    assert by_rescore.loss < 0.85 * by_trial.loss
    assert by_rescore.excess < 0.4 * by_trial.excess
