"""From evaluation samples to numbers: what is reported of a model, and how it is averaged.

Each metric gives one value and one weight per problem; the reported number is the weighted mean
over problems, which is what the intervals are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from analysis.diversity import (
    distinct_n,
    distinct_ratio,
    distinct_share,
    mean_edit_distance,
)
from analysis.normal_form import normal_form
from analysis.pass_at_k import KS, pass_at_k

if TYPE_CHECKING:
    import pandas as pd

    from analysis.runs import Run

DRAWN = 5  # accepted programs per problem that distinct_of_5 draws
DISTINCT = f"distinct_of_{DRAWN}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A reported number: its column name, its heading, and what it means in plain words."""

    name: str
    title: str
    meaning: str


def pass_metric(k: int) -> Metric:
    """pass@k."""
    meaning = (
        f"Chance that at least one of {k} samples is accepted; unbiased estimate (Chen et al. "
        "2021, eq. 1), mean over problems."
    )
    if k == 1:
        meaning = "Share of samples that are accepted, mean over problems."
    return Metric(f"pass@{k}", f"pass@{k}", meaning)


def metrics(ks: Sequence[int]) -> tuple[Metric, ...]:
    """What is reported where these k are asked for."""
    return (*map(pass_metric, ks), *DIVERSITY)


DIVERSITY = (
    Metric(
        DISTINCT,
        f"distinct of {DRAWN}",
        f"Expected share of distinct programs among {DRAWN} accepted ones drawn from a problem's "
        "samples (rarefaction, Hurlbert 1971), by normal form of the syntax tree. Comparable "
        f"between models with different pass@1. Mean over problems with at least {DRAWN} accepted "
        "samples, which are the easier ones for a weak model.",
    ),
    Metric(
        "distinct_ratio",
        "distinct / accepted",
        "Distinct programs / accepted programs, both counted within problems and summed over them. "
        "Falls as more samples are accepted, so it flatters weak models.",
    ),
    Metric(
        "edit_distance",
        "edit distance",
        "Mean token edit distance between two accepted programs of a problem, over the longer "
        "one's length, after normalisation; 0 where they are the same. Mean over problems with at "
        "least 2 accepted samples.",
    ),
    Metric(
        "distinct_2",
        "distinct-2",
        "Distinct pairs of adjacent program tokens / all of them, over all samples of a problem, "
        "right or wrong (Li et al. 2016). Mean over problems.",
    ),
    Metric(
        "token_entropy",
        "token entropy",
        "Entropy in nats of the model's next-token distribution as it was logged, mean over all "
        "sampled tokens.",
    ),
)
HIGHEST = {"token_entropy": float("inf")}  # of the others it is 1
TITLES = {metric.name: metric.title for metric in DIVERSITY}


def bounds(metric: str) -> tuple[float, float]:
    """The least and the greatest that the metric can be."""
    return 0.0, HIGHEST.get(metric, 1.0)


def judged(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples that the judge could decide on: INFRA_ERROR leaves the denominator."""
    lost = samples["verdict"] == "INFRA_ERROR"
    return samples[~lost] if lost.any() else samples


def counts(samples: pd.DataFrame) -> pd.DataFrame:
    """By problem: n, the samples that were judged, and c, those that were accepted."""
    import numpy as np
    import pandas as pd

    samples = judged(samples)
    codes, problems = pd.factorize(samples["problem"], sort=True)
    accepted = codes[(samples["verdict"] == "ACCEPTED").to_numpy(bool)]
    found = {"n": np.bincount(codes), "c": np.bincount(accepted, minlength=len(problems))}
    return pd.DataFrame(found, index=pd.Index(problems, name="problem"))


def pass_scores(found: pd.DataFrame, ks: Sequence[int] = KS) -> pd.DataFrame:
    """pass@k per problem from the `counts` of one evaluation.

    Columns: problem, metric ("pass@k"), value, weight (1). A problem with fewer than k judged
    samples has no row for that k.
    """
    import numpy as np
    import pandas as pd

    asked = [k for k in ks if k <= found["n"].max()]
    pairs = list(zip(found["n"].tolist(), found["c"].tolist(), strict=True))
    value = [pass_at_k(n, c, k) if k <= n else np.nan for n, c in pairs for k in asked]
    columns = {
        "problem": np.repeat(found.index.to_numpy(object), len(asked)),
        "metric": np.tile(np.array([f"pass@{k}" for k in asked], object), len(found)),
        "value": np.array(value, float),
        "weight": 1.0,
    }
    return pd.DataFrame(columns).dropna(subset="value", ignore_index=True)


def diversity_scores(samples: pd.DataFrame) -> pd.DataFrame:
    """DIVERSITY per problem; columns as in `pass_scores`.

    A problem has no row for a metric that is not defined on it. An accepted program that this
    Python cannot parse is left out of the metrics on accepted programs.
    """
    import pandas as pd

    rows: list[tuple[str, str, float, float]] = []
    of_problem, known = accepted_forms(samples), judged(samples)
    for problem, programs in _by_problem(known["problem"], known["program"]).items():
        forms = of_problem.get(problem, [])
        if forms:
            rows.append((problem, "distinct_ratio", distinct_ratio(forms), float(len(forms))))
        if len(forms) >= 2:
            rows.append((problem, "edit_distance", mean_edit_distance(forms), 1.0))
        if len(forms) >= DRAWN:
            rows.append((problem, DISTINCT, distinct_share(forms, DRAWN), 1.0))
        if (share := distinct_n(programs, 2)) is not None:
            rows.append((problem, "distinct_2", share, 1.0))
    table = pd.DataFrame(rows, columns=["problem", "metric", "value", "weight"])
    return pd.concat([table, entropy_scores(samples)], ignore_index=True)


def entropy_scores(samples: pd.DataFrame) -> pd.DataFrame:
    """token_entropy per problem, each sample's mean weighted by its tokens; columns as above.

    Empty where the samples have no column `entropy`.
    """
    import pandas as pd

    samples = judged(samples)
    if "entropy" not in samples:
        return pd.DataFrame(columns=["problem", "metric", "value", "weight"])
    samples = samples[samples["entropy"].notna() & (samples["tokens"] > 0)]
    tokens = samples["tokens"].groupby(samples["problem"]).sum().astype(float)
    nats = (samples["entropy"] * samples["tokens"]).groupby(samples["problem"]).sum()
    table = pd.DataFrame({"metric": "token_entropy", "value": nats / tokens, "weight": tokens})
    return table.rename_axis("problem").reset_index()


def scores(samples: pd.DataFrame, ks: Sequence[int] = KS) -> pd.DataFrame:
    """All of `metrics(ks)` per problem, for the samples of one evaluation."""
    import pandas as pd

    parts = [pass_scores(counts(samples), ks), diversity_scores(samples)]
    return pd.concat(parts, ignore_index=True)


def curve_scores(samples: pd.DataFrame, ks: Sequence[int] = (1,)) -> pd.DataFrame:
    """pass@1, pass@k and DISTINCT per problem, as `scores` has them; nothing that takes longer."""
    import pandas as pd

    rows = [
        (problem, DISTINCT, distinct_share(forms, DRAWN), 1.0)
        for problem, forms in accepted_forms(samples).items()
        if len(forms) >= DRAWN
    ]
    table = pd.DataFrame(rows, columns=["problem", "metric", "value", "weight"])
    return pd.concat([pass_scores(counts(samples), sorted({1, *ks})), table], ignore_index=True)


@cache
def evaluated(run: Run, step: int, ks: tuple[int, ...]) -> pd.DataFrame:
    """`curve_scores` of one evaluation of a run, found once."""
    return curve_scores(run.evaluation(step), ks)


def accepted_forms(samples: pd.DataFrame) -> dict[str, list[str]]:
    """Problem → normal forms of its accepted programs, without those that cannot be parsed."""
    right = samples["verdict"] == "ACCEPTED"
    accepted = _by_problem(samples["problem"][right], samples["program"][right])
    return {
        problem: [form for program in programs if (form := normal_form(program)) is not None]
        for problem, programs in accepted.items()
    }


def _by_problem(problems: pd.Series, programs: pd.Series) -> dict[str, list[str]]:
    """Problem → its programs in their order; the problems sorted."""
    found: dict[str, list[str]] = {}
    for problem, program in zip(problems, programs, strict=True):
        found.setdefault(problem, []).append(program)
    return dict(sorted(found.items()))
