"""The page of `make anatomy`: tables, sentences that its numbers decide, figure and CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.markdown import table
from experiments.anatomy.figure import ABOVE, BELOW, draw
from experiments.anatomy.objectives import objectives
from experiments.anatomy.similarity import classes, least_cosines
from experiments.studies.figures import save

if TYPE_CHECKING:
    import pandas as pd

    from experiments.anatomy.measure import Anatomy
    from experiments.anatomy.options import Options

EQUAL, SAME = 0.999, 0.9999  # cosines
NOTHING, SOME = 0.01, 0.2  # shares of the weight on failures
PREAMBLE = """# Anatomy of objectives

Written by `make anatomy` at commit {commit} in {minutes:.0f} minutes, \
{workers} processes of one thread. All numbers: [{name}.csv]({name}.csv).

## Question

Which objectives differ, and where? The gradients of all objectives are taken on the same \
responses, rewards and rollout log-probs. Where two gradients point the same way, training cannot \
tell their objectives apart, except by the length of a step.

## Setting

- The policies come from one run: `{command}`.
- Each policy generates {seeds} batches of {prompts} problems × {group} responses at temperature \
1, the same problems for all. *Fresh*: the gradient at the policy that generated them. *Stale*: \
at the same run's policy {lag} steps later.
- A gradient is that of one optimiser step on the whole batch, before clipping and Adam. Every \
objective has its default options unless its name says otherwise; `spo` alone is \
cross-entropy, β = 0.1, q0 = group.
- Critics predict 0, as at the start of a run. So PPO is here REINFORCE with whitened rewards \
and its KL, and DRO has nothing to compare a failure with. The average of `ppo_ewma` is the \
rollout policy, so that it is PPO here. The reference is the base.{moved}
- Offline programs fill the second half of each group for: {mixed}. The second half of each \
group counts as replayed for: {replayed}. All others have the policy's responses alone.
- Monte-Carlo values use 16 responses of the base for each problem.
- Refused when stale, and blank there: {refused}."""


def write(found: Anatomy, options: Options) -> None:
    """Write the page, its figure and its CSV file."""
    page = Path(options.out)
    page.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(found.rows["objective"]))
    csv_table(found, names).to_csv(page.with_suffix(".csv"), index=False, float_format="%.5g")
    save(draw(found, names), page.with_suffix(".svg"))
    page.write_text("\n\n".join(sections(found, options, names)) + "\n")


def sections(found: Anatomy, options: Options, names: Sequence[str]) -> Iterator[str]:
    """Yield the page's parts, from the top."""
    rows, page = found.rows, Path(options.out).stem
    facts = {"commit": found.stages[0].commit, "minutes": found.minutes, "command": found.command}
    given = {data: _names(rows[rows["data"] == data]) for data in ("mixed", "replayed")}
    refused = _names(rows[rows["norm 0"].isna()])
    given["moved"] = _moved_references(names)
    yield PREAMBLE.format(**vars(options), **facts, **given, name=page, refused=refused)
    yield table(["policy", "steps", "pass@1", "distinct of 5"], _policy_rows(found))
    yield _POLICIES.format(pool=options.pool)
    yield "## What the numbers say"
    yield "\n".join(f"- {line}" for line in findings(found, names))
    yield f"![cosines of all pairs, and a map]({page}.svg)"
    yield _CAPTION.format(below=BELOW, above=ABOVE)
    yield f"## Same direction\n\n{_SAME.format(least=EQUAL)}"
    yield "\n".join(f"- {situation}: {groups}" for situation, groups in _classes(found, names))
    yield f"## Norm and weight\n\n{_WEIGHTS}"
    yield _weight_table(found, names)
    yield f"## Groups that are all right, all wrong, half right\n\n{_GROUPS}"
    yield _group_table(found, names, "half-trained, fresh")


_POLICIES = (
    "pass@1 and the distinct share of 5 accepted programs are at temperature 1, on the problems "
    "of the batches, {pool} responses each."
)
_SAME = (
    "Objectives in one group have cosines of at least {least} with each other, means over batches. "
    "Objectives that are alone are left out."
)
_CAPTION = (
    "Matrix: below the diagonal {below}, above it {above}; both in the order of a clustering of "
    "the mean over all situations. Map: classical scaling of the mean cosines to two dimensions, "
    "so that near objectives have near directions; those of mean cosine ≥ .99 share a point."
)
_WEIGHTS = (
    "Norm: of the gradient, mean over batches. On failures: share of Σ_t |∂L/∂log π(a_t)| that "
    "falls on rejected responses of the policy's own. Between batches: cosine of one objective's "
    "gradients on two batches of different problems, the scale of sampling noise."
)
_GROUPS = (
    "Mean of Σ_t −∂L/∂log π(a_t) on the responses of hand-made groups of the half-trained policy, "
    "in units of the objective's mean weight of a response in this batch. Plus: made more "
    "probable. *Size* is the mean of Σ_t |∂L/∂log π(a_t)| in an all-right group: a group "
    "that is pushed apart within has a size and a mean of about 0. The three kinds of group are in "
    "one batch, of the same problems, and hold no offline programs. `repo` has no gradient on "
    "them: the replayed half of a half-right group is rejected, and is compared with itself alone."
)


def _moved_references(names: Sequence[str]) -> str:
    ages = {name: objectives()[name].reference_age for name in names}
    moved = ", ".join(f"`{name}`" for name, age in ages.items() if age is not None)
    if not moved:
        return ""
    return (
        f" It moves (`train.reference_every`) for {moved}: right after a move it is the policy at "
        "which the gradient is taken, later the policy so many steps before. It is never older "
        "than the base: on fresh batches of the base this changes nothing."
    )


def _names(rows: pd.DataFrame) -> str:
    return ", ".join(dict.fromkeys(rows["objective"])) or "none"


def _policy_rows(found: Anatomy) -> list[list[str]]:
    return [
        [stage.name, str(stage.steps), f"{stage.solved:.3f}", _number(stage.distinct, 3)]
        for stage in found.stages
    ]


def csv_table(found: Anatomy, names: Sequence[str]) -> pd.DataFrame:
    """Return the rows, each with its cosines to all objectives."""
    import pandas as pd

    pairs = np.concatenate([table.numpy() for table in found.cosines.values()])
    columns = pd.DataFrame(pairs, columns=[f"cos {name}" for name in names])
    return pd.concat([found.rows.reset_index(drop=True), columns], axis=1)


def _classes(found: Anatomy, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each situation and its groups, then those of all situations."""
    for situation, cosines in found.cosines.items():
        yield situation, _text(classes(cosines.numpy(), names, EQUAL))
    yield "all situations", _text(classes(least_cosines(found), names, EQUAL))


def _text(groups: Sequence[Sequence[str]]) -> str:
    return "; ".join("{" + ", ".join(group) + "}" for group in groups) or "none"


def findings(found: Anatomy, names: Sequence[str]) -> Iterator[str]:
    """Yield the sentences that the tables decide."""
    fresh = [situation for situation in found.cosines if situation.endswith("fresh")]

    def cos(one: str, other: str) -> str:
        values = (found.cosines[s][names.index(one), names.index(other)] for s in fresh)
        return ", ".join(_number(float(value), 4) for value in values)

    stages = ", ".join(situation.split(",")[0] for situation in fresh)
    known = set(names)
    for other, variants in _COMPARED.items():
        told = [f"{name} {cos(name, other)}" for name in variants if {name, other} <= known]
        if told:
            yield f"Cosine with `{other}`, fresh ({stages}): {'; '.join(told)}."
    same = classes(least_cosines(found), names, SAME)
    yield (
        f"Cannot differ but for the length of a step (cosine ≥ {SAME} in every situation in which "
        f"both have a gradient): {_text(same)}."
    )
    for situation in fresh:
        shares = found.rows[found.rows["situation"] == situation].set_index("objective")["rejected"]
        nothing, some = shares[shares < NOTHING].index, shares[shares > SOME].index
        yield (
            f"{situation}: less than {NOTHING:g} of the weight is on failures for "
            f"{', '.join(nothing) or 'none'}; more than {SOME:g} for {len(some)} of "
            f"{shares.notna().sum()} objectives."
        )
    yield from _moved_by_age(found, names)
    base = found.rows[found.rows["situation"] == fresh[0]]["between batches"]
    yield (
        f"Noise: two batches of the base agree with a cosine of {base.median():.2f} (median over "
        "objectives). So a cosine above that is more than two batches of one objective share."
    )


_COMPARED = {
    "raft": (
        *("spo β=0.03", "spo", "spo β=0.3", "spo β=0.5", "spo β=1", "spo slope_width=0.01"),
        *("spo monte_carlo", "spo exponent=q", "spo r∈{-1,1}"),
        *("spo reference=now", "spo reference=10 steps ago"),
    ),
    "rloo": (
        *("spo squared β=0.03", "spo squared β=0.1", "spo squared β=0.5", "spo squared β=1"),
        *("spo", "gvpo", "dr_grpo", "grpo", "ppo"),
    ),
    "grpo": ("grpo kl=0", "dapo", "dr_grpo", "gspo", "ppo", "spo"),
    "spo": (
        *("spo r∈{-1,0}", "spo r∈{-1,1}", "spo β=0.5", "spo half-online"),
        *("spo reference=now", "spo reference=10 steps ago", "sft"),
    ),
    "ppo": ("ppo critic=none", "ppo kl=0", "vapo", "reinforce_pp"),
}


def _moved_by_age(found: Anatomy, names: Sequence[str]) -> Iterator[str]:
    """Yield, for each policy, pairs that are equal on fresh batches and apart on stale ones."""
    for situation, cosines in found.cosines.items():
        stale = found.cosines.get(situation.replace("fresh", "stale"))
        if stale is None or stale is cosines or len(names) < 2:
            continue
        upper = np.triu(np.ones((len(names), len(names)), dtype=bool), 1)
        equal, apart = upper & (cosines.numpy() >= EQUAL), upper & (stale.numpy() < EQUAL)
        stage = situation.split(",")[0]
        yield (
            f"{stage}: {equal.sum()} of {upper.sum()} pairs are equal (cosine ≥ {EQUAL}) when "
            f"fresh; {(equal & apart).sum()} of these are not when stale."
        )


# Tables


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def _weight_table(found: Anatomy, names: Sequence[str]) -> str:
    by: Any = found.rows.set_index(["objective", "situation"])
    situations = list(found.cosines)
    norms = [column for column in map(str, found.rows) if column.startswith("norm ")]
    stages = [s for s in situations if s.endswith("fresh")]
    heading = ["objective", *(f"norm: {s}" for s in stages)]
    heading += [f"on failures: {s}" for s in situations] + [f"between batches: {stages[0]}"]
    rows = []
    for name in names:
        row = [name, *(f"{by.loc[(name, s), norms].mean():.3g}" for s in stages)]
        row += [_number(by.loc[(name, s), "rejected"], 2) for s in situations]
        rows.append([*row, _number(by.loc[(name, stages[0]), "between batches"], 2)])
    return table(heading, rows)


def _group_table(found: Anatomy, names: Sequence[str], situation: str) -> str:
    by: Any = found.rows[found.rows["situation"] == situation].set_index("objective")
    columns = {
        "all right": "all right, accepted",
        "all right, size": "all right, accepted, size",
        "all wrong": "all wrong, rejected",
        "half right: accepted": "half right, accepted",
        "half right: rejected": "half right, rejected",
    }
    kept = {head: column for head, column in columns.items() if column in by}
    rows = [[name, *(_number(by.loc[name, c], 2) for c in kept.values())] for name in names]
    return table(["objective", *kept], rows)
