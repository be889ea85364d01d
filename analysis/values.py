"""Are predictions values? The table of `experiments.values` as statistics with intervals.

`values.csv` has a row for each arm, step of the weights, writer of the responses and statistic; in
brackets what a prediction without information gives.

Of whole responses, by the scores log_ratio (S), logp and critic at their end:

- auc: the probability that an accepted response has a higher score than a rejected one (.5)
- auc in a problem: the same for responses to one problem, which an unknown Q̂_0 cannot disturb (.5)
- best of n: how often the response with the highest score is right, of all to a problem (as
  `random`, one drawn by chance); `any` is how often one of them is

Along responses, at the cuts between prompt and end, of a prediction x of a target y:

- rank correlation (0), over all problems and in a problem; slope of y on x (0); squared error, its
  mean (that of `constant`); predicted and observed: the means of x and y in five equal parts

The targets are the reward of the policy's continuations (`reward`), which a critic predicts, and
three forms of the reference's soft value, which Q predicts: `soft`, its change since the prompt
(`soft change`), and `success`, e^((soft − best reward)/β), for rewards 0 and 1 the share of
successes. Beside them stand the `constant` mean, the `position` (tokens so far) and the value of
the `prompt` by as many continuations.

k continuations give `soft` with a bias: without a success among them it is 0, with one at least
1 − β log k. An exact value then has no slope of 1, nor the least squared error
(`tests/analysis/test_values.py`). `success` has no bias, and nor has Q's prediction of it, the
prompt's success times e^S, where that stays below 1, at which it is cut. Its five parts are those
of S, which has no noise of continuations, so predicted and observed agree for a value. Those of the
other targets are parts of x.

Intervals are those of `analysis.intervals`, over seeds and problems. A statistic that is no mean
over problems enters by its jackknife values: of problem i, θ + (n − 1) (m − θ without i), where m
is the mean of these over all problems.

`values.svg` draws four programs of each arm, two of them accepted: prediction and target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from analysis.figures import LARGE, Axis, Series, axis_range, legend_panel
from analysis.intervals import interval

BINS, DIGITS = 5, 12
GROUP = ["arm", "step", "writer"]
BOUNDS = dict.fromkeys(("auc", "auc in a problem", "best of n"), (0.0, 1.0))
BOUNDS |= dict.fromkeys(("rank correlation", "rank correlation in a problem"), (-1.0, 1.0))
BOUNDS["squared error"] = (0.0, np.inf)
Key = tuple[str, str, str]  # statistic, target, predictor


def auc(score: np.ndarray, accepted: np.ndarray) -> float:
    """Return the share of pairs (accepted, rejected) with the higher score first; ties are half."""
    right, wrong = accepted.sum(), (~accepted).sum()
    if not right * wrong:
        return np.nan
    return float((rankdata(score)[accepted].sum() - right * (right + 1) / 2) / (right * wrong))


def best_of(score: np.ndarray, accepted: np.ndarray) -> float:
    """Return the chance that the response with the highest score is accepted, of equals any."""
    return float(accepted[score == score.max()].mean())


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's; NaN where one of them is constant."""
    ranks = [rankdata(one.round(DIGITS)) for one in (x, y)]  # ties stay ties
    differ = all(len(np.unique(one)) > 1 for one in ranks)
    return float(np.corrcoef(*ranks)[0, 1]) if differ else np.nan


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of y on x; NaN where x is constant."""
    differ = len(np.unique(x.round(DIGITS))) > 1
    return float(np.cov(x, y)[0, 1] / x.var(ddof=1)) if differ else np.nan


def jackknifed(
    of: Callable[..., float], problems: np.ndarray, *columns: np.ndarray
) -> pd.DataFrame:
    """Return a statistic as values of the problems, whose mean it is."""
    names, whole = np.unique(problems), of(*columns)
    without = [of(*(column[problems != name] for column in columns)) for name in names]
    values = whole + (len(names) - 1) * (np.mean(without) - np.array(without))
    return pd.DataFrame({"value": values, "weight": 1.0}, index=names)


def means_of(problems: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Return the mean of each problem's values, with their number as its weight."""
    groups = pd.Series(values).groupby(problems)
    return pd.DataFrame({"value": groups.mean(), "weight": groups.size().astype(float)})


def of_responses(run: pd.DataFrame) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Yield the statistics of whole responses, as values and weights of problems."""
    ends = run[run["cut"] == run["tokens"]]
    parts = dict(iter(ends.groupby("problem")))
    right = [part["accepted"].to_numpy(bool) for part in parts.values()]

    def mean(values: Sequence[float], weights: float | Sequence[float] = 1.0) -> pd.DataFrame:
        return pd.DataFrame({"value": values, "weight": weights}, index=list(parts))

    yield ("best of n", "accepted", "random"), mean([float(one.mean()) for one in right])
    yield ("best of n", "accepted", "any"), mean([float(one.any()) for one in right])
    for name in ("log_ratio", "logp", "critic"):
        if ends[name].notna().all():
            columns = (ends[each].to_numpy() for each in ("problem", name, "accepted"))
            yield ("auc", "accepted", name), jackknifed(auc, *columns)
            scores = [part[name].to_numpy() for part in parts.values()]
            pairs = [float(one.sum() * (~one).sum()) for one in right]
            yield ("auc in a problem", "accepted", name), mean([*map(auc, scores, right)], pairs)
            yield ("best of n", "accepted", name), mean([*map(best_of, scores, right)])


def with_predictions(run: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of continued responses, with Q and the values at their prompts."""
    prompts = run.loc[run["cut"] == 0, ["response", "soft", "policy"]]
    rows = run.merge(prompts, on="response", suffixes=("", "_of_prompt"))
    change = rows["beta"] * rows["log_ratio"]
    return rows.assign(Q=rows["soft_of_prompt"] + change, change=change)


def along_responses(run: pd.DataFrame) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Yield the statistics of predictions at cuts, as values and weights of problems."""
    rows = with_predictions(run)
    rows = rows[(rows["cut"] > 0) & (rows["cut"] < rows["tokens"])]
    rows["soft change"] = rows["soft"] - rows["soft_of_prompt"]
    best = rows["reward"].max()
    for name in ("soft", "Q", "soft_of_prompt"):
        rows[f"success: {name}"] = np.exp((rows[name] - best).clip(upper=0) / rows["beta"])
    for target, y_name, predictors in (
        ("soft", "soft", {"Q": "Q", "prompt": "soft_of_prompt"}),
        ("soft change", "soft change", {"Q": "change"}),
        ("success", "success: soft", {"Q": "success: Q", "prompt": "success: soft_of_prompt"}),
        ("reward", "policy", {"critic": "critic", "prompt": "policy_of_prompt"}),
    ):
        rows["constant"] = rows[y_name].mean()
        for name, x_name in (predictors | {"constant": "constant", "position": "cut"}).items():
            problems, x, y = (rows[each].to_numpy() for each in ("problem", x_name, y_name))
            if not len(x) or np.isnan(x).any():
                continue
            yield ("rank correlation", target, name), jackknifed(rank_correlation, problems, x, y)
            each = {p: rank_correlation(x[problems == p], y[problems == p]) for p in problems}
            sizes = rows.groupby("problem").size()
            in_one = pd.DataFrame({"value": pd.Series(each), "weight": sizes.astype(float)})
            yield ("rank correlation in a problem", target, name), in_one
            if name != "position":  # in other units
                yield ("slope", target, name), jackknifed(slope, problems, x, y)
                yield ("squared error", target, name), means_of(problems, (x - y) ** 2)
            by = rows["change"].to_numpy() if target == "success" else x
            part = np.argsort(np.argsort(by, kind="stable")) * BINS // len(x)
            for number in range(BINS if name in ("Q", "critic") else 0):
                mine, of = part == number, f"in part {number + 1} of {BINS}"
                yield (f"predicted {of}", target, name), means_of(problems[mine], x[mine])
                yield (f"observed {of}", target, name), means_of(problems[mine], y[mine])


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return values.csv: each statistic of an arm's seeds, with its interval."""
    rows = []
    for names, part in table.groupby(GROUP, sort=False):
        found: dict[Key, list[pd.DataFrame]] = {}
        for _, run in part.groupby("run"):
            for key, problems in (*of_responses(run), *along_responses(run)):
                found.setdefault(key, []).append(problems)
        for key, seeds in found.items():
            values = pd.concat([one["value"] for one in seeds], axis=1).T.to_numpy()
            weights = pd.concat([one["weight"] for one in seeds], axis=1).T.fillna(0).to_numpy()
            bounds, weights = BOUNDS.get(key[0], (-np.inf, np.inf)), weights * ~np.isnan(values)
            measured = sum(one["value"].notna().any() for one in seeds)
            rows.append((*names, *key, *interval(values, weights, bounds=bounds), measured))
    columns = ["statistic", "target", "predictor", "mean", "low", "high", "seeds"]
    return pd.DataFrame(rows, columns=[*GROUP, *columns]).dropna(subset="mean")


def figure(table: pd.DataFrame) -> str:
    """Return an SVG: a row for each arm, of programs that its last weights wrote."""
    body, down = [], 0
    for arm, part in table[table["writer"] == "policy"].groupby("arm", sort=False):
        last = part[part["step"] == part["step"].max()]
        rows = with_predictions(last[last["run"] == last["run"].min()])
        pair = ("Q", "soft") if rows["critic"].isna().any() else ("critic", "policy")
        programs = sorted((one for _, one in rows.groupby("response")), key=len, reverse=True)
        right = [one.assign(verdict="accepted") for one in programs if one["accepted"].all()]
        wrong = [one.assign(verdict="rejected") for one in programs if not one["accepted"].any()]
        for number, program in enumerate([*right[:2], *wrong[:2]]):
            at = program["cut"].to_numpy(float)
            series = [Series(name, at, program[name].to_numpy(float)) for name in pair]
            up = Axis(pair[1], *axis_range(one.y for one in series))
            panel = legend_panel("", Axis("tokens", 0, at.max()), up, series)
            head, source = f"{arm}: {program['verdict'].iloc[0]}", "".join(program["text"])
            lines = [head, *source.splitlines()]
            texts = [f'<tspan x="46" dy="14">{escape(line)}</tspan>' for line in lines]
            place = f'transform="translate({number * LARGE.width},{down})" font-size="12"'
            text = f'<text y="{LARGE.height}" font-family="monospace">{"".join(texts)}</text>'
            body.append(f'<g {place} xml:space="preserve">{panel.body}{text}</g>')
        down += LARGE.height + 130  # with room for the program
    box = f'viewBox="0 0 {4 * LARGE.width} {down}" style="background:#fff"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(body)}</svg>\n'
