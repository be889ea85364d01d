"""Statistics of predictions against values worked out by hand, and the figure."""

import itertools
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from analysis import values
from analysis.intervals import interval

RIGHT = {"p": [1, 0, 0], "q": [1, 1, 0], "r": [0, 0, 0]}
SCORES = {"p": [3.0, 1.0, 3.0], "q": [0.5, 2.0, 9.0], "r": [7.0, 7.0, 8.0]}
NAN = float("nan")


COLUMNS = """run seed problem response cut reward accepted text log_ratio logp soft policy"""
SAME = {"arm": "spo", "step": 9, "writer": "policy", "tokens": 9, "beta": 0.5, "critic": NAN}


def table(runs, off=0.0):
    """Two cuts before the end of each response; Q misses `off` times the change of its value."""
    rows = []
    for run, (name, responses) in itertools.product(range(runs), RIGHT.items()):
        for number, right in enumerate(responses):
            start, change = 0.1 + 0.2 * len(name * number), 0.02 * (number + run)
            cuts = ((0, 0.0), (4, change), (7, 3 * change), (9, right - start))
            for cut, moved in (cuts[0], *cuts[1 + (name == "r") :]):  # r has fewer
                soft, ratio, text = start + moved, 2 * moved * (1 - off), "a<b\n" * (cut > 0)
                response = 3 * list(RIGHT).index(name) + number
                names = (f"r{run}", run, name, response, cut, float(right), bool(right), text)
                rows.append((*names, ratio, SCORES[name][number], soft, soft / 2))
    return pd.DataFrame(rows, columns=COLUMNS.split()).assign(**SAME, policy_error=0.1)


def found(of, statistic, predictor, target=None):
    rows = of[(of["statistic"] == statistic) & (of["predictor"] == predictor)]
    (row,) = (rows if target is None else rows[rows["target"] == target]).to_dict("records")
    return row["mean"], row["low"], row["high"]


def test_pairs_the_best_of_equals_and_jackknife_values_of_a_mean():
    accepted = np.array([True, False, True, False])
    assert values.auc(np.array([3.0, 1.0, 2.0, 2.0]), accepted) == 3.5 / 4
    assert values.best_of(np.array([3.0, 1.0, 3.0, 3.0]), accepted) == 2 / 3
    assert np.isnan(values.auc(np.array([1.0, 2.0]), np.array([True, True])))
    for one in (values.rank_correlation, values.slope):  # without its problem nothing is left
        assert np.isnan(values.jackknifed(one, np.array(["a", "a"]), *np.eye(2))["value"]).all()
    problems, x = np.repeat(["a", "b", "c"], 2), np.array([1.0, 3, 4, 4, 9, 0])
    assert values.jackknifed(np.mean, problems, x)["value"].tolist() == pytest.approx([2, 4, 4.5])


def test_responses_are_compared_over_all_problems_and_in_each():
    summary = values.summary(table(2))
    # accepted have logp 3, .5, 2; rejected 1, 3 (of p), 9 (of q), 7, 7, 8 (of r)
    assert found(summary, "auc", "logp")[0] == pytest.approx((1.5 + 0 + 1) / 18)
    # of p's two pairs 1.5, of q's two none
    assert found(summary, "auc in a problem", "logp")[0] == pytest.approx(1.5 / 4)
    shares = {"random": [1 / 3, 2 / 3, 0], "any": [1, 1, 0], "logp": [1 / 2, 0, 0]}
    for name, each in shares.items():
        expected = interval([each] * 2, bounds=(0, 1))
        assert found(summary, "best of n", name) == pytest.approx(expected)
    assert "critic" not in set(summary["predictor"])


@pytest.mark.parametrize("off", [0.0, 2.0])
def test_a_soft_value_is_recognised_and_its_opposite_too(off):
    """off=2: Q falls as the value rises."""
    summary = values.summary(table(2, off))
    sign, rows = 1 - off, table(2)
    at = rows[(rows["cut"] > 0) & (rows["cut"] < 9)]
    change = 0.02 * (at["response"] % 3 + at["seed"]) * np.where(at["cut"] == 7, 3, 1)
    for statistic in ("rank correlation", "slope"):
        assert found(summary, statistic, "Q", "soft change")[0] == pytest.approx(sign)
    apart = at["soft"] - at.groupby("run")["soft"].transform("mean")
    for name, error in {"Q": off * change, "prompt": change, "constant": apart}.items():
        mean, *_ = found(summary, "squared error", name, "soft")
        assert mean == pytest.approx(error.pow(2).mean())
    for part in range(1, values.BINS + 1):
        words = [f"{word} in part {part} of {values.BINS}" for word in ("predicted", "observed")]
        x, y = (found(summary, word, "Q", "soft change")[0] for word in words)
        assert x == pytest.approx(sign * y, abs=1e-12)


def test_the_figure_has_four_programs_of_an_arm():
    both = pd.concat([table(1), table(1).assign(arm="ppo", critic=0.2)])
    texts = ["".join(x.itertext()) for x in ElementTree.fromstring(values.figure(both)).iter()]
    assert texts.count("a<b") == 2 * (3 + 3 + 3 + 3)
    assert texts.count("spo: accepted") == texts.count("ppo: rejected") == 2
    assert {"critic: policy 0.2 at 4", "soft: soft 0.1 at 0"} <= {*texts}


def test_an_exact_value_is_seen_in_successes_and_not_in_soft_values_of_few_continuations():
    """S is exact; 48 continuations leave no trace of small chances in a soft value at β = .05."""
    rng, beta, rows = np.random.default_rng(0), 0.05, []
    for problem in range(150):
        start = rng.beta(0.3, 5.7)
        for response in range(2):
            chance = start
            for cut in range(4):
                chance = max(chance if cut == 0 else rng.beta(8 * chance, 8 * (1 - chance)), 0.001)
                share = rng.binomial(48, chance) / 48
                soft = beta * np.log(share * np.exp(1 / beta) + 1 - share)
                ratio = np.log(chance / max(start, 0.001))
                rows.append((f"{problem}", f"{problem}.{response}", cut, 1.0, ratio, soft))
    names = ["problem", "response", "cut", "reward", "log_ratio", "soft"]
    same = SAME | {"beta": beta, "run": "r", "accepted": True, "logp": 0.0, "policy": 0.0}
    exact = pd.DataFrame(rows, columns=names).assign(**same)
    of = values.summary(exact)
    assert found(of, "slope", "Q", "soft change")[0] > 2
    errors = [found(of, "squared error", x, "soft")[0] for x in ("Q", "constant")]
    assert errors[0] > errors[1]
    for part in range(1, values.BINS + 1):
        words = [f"{word} in part {part} of {values.BINS}" for word in ("predicted", "observed")]
        (mean, *_), (_, low, high) = (found(of, word, "Q", "success") for word in words)
        assert low - 0.01 < mean < high + 0.01
    inside = [
        found(of, "rank correlation in a problem", x, "success")[0] for x in ("Q", "position")
    ]
    assert inside[0] > 0.3 > abs(inside[1])
