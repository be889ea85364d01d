"""From packed counts to the front, in ten cells: `make notebook`."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo
    import pandas as pd

    from analysis import open_study, pass_at_k

    return mo, open_study, pass_at_k, pd


@app.cell
def _(mo):
    mo.md("""
    # From packed counts to the front

    SPO's paper expects more solutions among ten samples than PPO leaves. Does the study `front`
    show that after equal steps, or only where both solve as much at the first try?
    """)
    return


@app.cell
def _(open_study):
    study = open_study("docs/results/study-front")
    study.arms
    return (study,)


@app.cell
def _(study):
    # Of n judged samples of a problem, c were accepted. All else follows from these counts.
    counts = study.counts
    counts
    return (counts,)


@app.cell
def _(counts, pass_at_k):
    last = counts[counts["step"] == counts["step"].max()]
    scores = last[["arm", "seed"]].assign(
        **{
            f"pass@{k}": [pass_at_k(n, c, k) for n, c in zip(last.n, last.c, strict=True)]
            for k in (1, 10)
        }
    )
    by_arm = scores.groupby("arm")[["pass@1", "pass@10"]].mean()
    by_arm.sort_values("pass@1")
    return (by_arm,)


@app.cell
def _(study):
    arms = ["spo_mc", "ppo", "grpo", "raft"]
    study.curves("pass@1", arms=arms)
    return (arms,)


@app.cell
def _(arms, study):
    study.curves("pass@10", arms=arms)
    return


@app.cell
def _(arms, study):
    front = study.front(arms)
    front
    return (front,)


@app.cell
def _(arms, pd, study):
    pairs = pd.DataFrame(
        [
            study.paired(arms[0], other, at=metric)
            for metric in ("pass@1", "pass@10", "pass@10 at equal pass@1")
            for other in arms[1:]
        ]
    ).set_index(["metric", "a", "b"])
    pairs[["difference", "low", "high", "p", "p_contrasts"]]
    return (pairs,)


@app.cell
def _(mo, pairs):
    after, equal = (
        "{difference:+.3f} [{low:.3f}, {high:.3f}]".format(**pairs.loc[(metric, "spo_mc", "ppo")])
        for metric in ("pass@10", "pass@10 at equal pass@1")
    )
    mo.md(f"SPO − PPO at pass@10: {after} after equal steps, {equal} at equal pass@1.")
    return


if __name__ == "__main__":
    app.run()
