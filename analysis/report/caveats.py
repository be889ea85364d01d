"""What a reader of a report must know before believing it, found in the runs, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from analysis.load.groups import Group, as_text, differing_keys, join_names
from analysis.load.run_folders import Run
from analysis.metrics.definitions import DISTINCT, TITLES
from analysis.metrics.evaluated_models import EvaluatedModel
from analysis.stats.tables import BUDGET_TITLES, final_budget

FEW_SEEDS = 5
FEW_PROBLEMS = 10
BUDGET_SLACK = 1.1


def caveats(groups: Sequence[Group], stages: Sequence[EvaluatedModel]) -> list[str]:
    """One sentence or two for each thing that limits what the tables show; most weighty first."""
    found: list[str] = []
    for check in (
        _unfinished,
        _left_out,
        _engines,
        _others,
        _seeds,
        _budgets,
        _charged,
        _tuning,
        _provenance,
    ):
        found.extend(check(groups))
    found.extend(_evaluations(stages))
    found.extend(_thin(stages))
    return found


def _unfinished(groups: Sequence[Group]) -> Iterable[str]:
    for group in groups:
        for run in group.runs:
            if run.status == "finished":
                continue
            steps = run.evaluated_steps
            last = (
                f"its last evaluation is at step {steps[-1]}" if steps else "it has no evaluation"
            )
            # A killed process cannot change its own status.
            state = "running, or was killed" if run.status == "running" else run.status
            error = f" ({run.info['error']})" if run.info.get("error") else ""
            yield f"{run.name} is {state}{error}; {last}."


def _left_out(groups: Sequence[Group]) -> Iterable[str]:
    for group in groups:
        behind = [run.name for run in group.runs if run not in group.complete]
        if behind and group.complete:
            yield (
                f"{group.label}: {join_names(behind)} did not reach the evaluation at step "
                f"{group.last_step} and {_are(behind)} left out of the final numbers."
            )
        if not group.complete:
            yield f"{group.label}: no evaluation at all, so it has no row in the result table."
        elif group.last_step == 0:
            yield f"{group.label}: evaluated before training only, so it has no row of its own."
        if group.repeats:
            names = [run.name for run in group.repeats]
            yield (
                f"{group.label}: {join_names(names)} {_are(names)} left out, because another run with "
                "the same settings and seed got as far or further."
            )


def _engines(groups: Sequence[Group]) -> Iterable[str]:
    """Where what wrote the responses and what learned from them were not of one mind."""
    for group in groups:
        wrong = [run.name for run in group.runs if _mismatched(run)]
        if wrong:
            yield (
                f"{group.label}: in {join_names(wrong)} the engine's log-probs were not the learner's "
                "(see mismatch/mean), so the responses came from another policy than was assumed."
            )
        if (kind := group.settings.get("train.correction", "none")) != "none":
            yield (
                f"{group.label}: the ratio is corrected for what wrote the responses "
                f"(train.correction={kind})."
            )
        if (whose := group.settings.get("train.missing_logprobs", "reject")) != "reject":
            yield (
                f"{group.label}: where nobody told a response's log-probs, its ratio takes others "
                f"(train.missing_logprobs={whose}), so the policy did not learn from who wrote it."
            )


def _others(groups: Sequence[Group]) -> Iterable[str]:
    """Where runs learned from what no budget of their own paid for."""
    found: dict[str, list[str]] = {}
    for group in groups:
        taken = [
            f"{key}=[{','.join(given)}]"
            for key in ("replay.from_runs", "replay.files")
            if (given := group.settings.get(key))
        ]
        if taken:
            found.setdefault(join_names(taken), []).append(group.label)
    for taken, labels in found.items():
        yield (
            f"{join_names(labels)} learned from what others wrote ({taken}); the judging of that is "
            "charged, the writing, and training who wrote it, is not."
        )


def _mismatched(run: Run) -> bool:
    """Any check whose mean difference was above its bound, or no number."""
    if "mismatch/bound" not in run.metrics:
        return False
    checked = run.metrics[run.metrics["mismatch/bound"].notna()]
    return not (checked["mismatch/mean"] <= checked["mismatch/bound"]).all()


def _seeds(groups: Sequence[Group]) -> Iterable[str]:
    single = [group.label for group in groups if len(group.complete) == 1]
    few = [group.label for group in groups if 1 < len(group.complete) < FEW_SEEDS]
    if single:
        yield (
            f"One seed only: {_of(single, groups)}. These intervals cover the choice of problems "
            "and the sampling, not the luck of training: in simulations they held the truth in 48 "
            "to 95 of 100 cases, the more seeds differ the fewer. One seed tells no difference."
        )
    if few:
        yield (
            f"Fewer than {FEW_SEEDS} seeds: {_of(few, groups)}. The spread between seeds is itself "
            "poorly known, which makes intervals wide; in simulations they held the truth in 89 "
            "to 97 of 100 cases at 2 seeds, in 94 to 97 at 3."
        )


def _tuning(groups: Sequence[Group]) -> Iterable[str]:
    """How each group's values were found (`tuned`), where any group's were looked for."""
    ways: dict[str, list[str]] = {}
    for group in groups:
        ways.setdefault(str(group.runs[0].config.get("tuned") or ""), []).append(group.label)
    if not any(ways):
        return
    given = f" Not tuned, but run as given: {join_names(ways.pop(''))}." if "" in ways else ""
    told: dict[str, list[str]] = {}  # by what was tried, which is often the same for all
    for way, labels in sorted(ways.items()):
        trials, _, table = way.partition(", table ")
        where = f" ({table})" if table else ""
        told.setdefault(trials, []).append(f"{join_names(labels)}{where}")
    every = "; ".join(f"by {trials}: {', '.join(each)}" for trials, each in told.items())
    yield f"Tuned {every}.{given}"


def _of(labels: Sequence[str], groups: Sequence[Group]) -> str:
    return f"all {len(labels)} groups" if len(labels) == len(groups) > 3 else join_names(labels)


def _budgets(groups: Sequence[Group]) -> Iterable[str]:
    unequal = []
    for name, words in BUDGET_TITLES.items():
        spent = {}
        for group in groups:
            amounts = [final_budget(run)[name] for run in group.complete if group.last_step > 0]
            mean = sum(amounts) / len(amounts) if amounts else math.nan
            if not math.isnan(mean):
                spent[group.label] = mean
        if spent and max(spent.values()) > BUDGET_SLACK * min(spent.values()):
            unequal.append(f"{words} {_range(spent)}")
    if unequal:
        yield f"The groups did not spend the same: {'; '.join(unequal)}."


def _charged(groups: Sequence[Group]) -> Iterable[str]:
    shares = {group.label: max(map(_charged_share, group.runs), default=0.0) for group in groups}
    much = {label: share for label, share in shares.items() if share > BUDGET_SLACK - 1}
    if much:
        yield (
            f"Up to {max(much.values()):.0%} of the wall time of {_of(list(much), groups)} is "
            "what judging, or evaluating the base, took in another run, charged once more."
        )


def _charged_share(run: Run) -> float:
    if not len(run.metrics) or "time/charged_s" not in run.metrics:
        return 0.0
    last = run.metrics.iloc[-1]
    return float(last["time/charged_s"] / last["time/total_s"])


# Facts of run.json that ought to be the same in all runs, and what follows where they are not.
PROVENANCE = {
    "data hashes": ("data_hash", "the problems are not the same"),
    "judge versions": ("judge_version", "a program may be judged otherwise"),
    "sandboxes": ("sandbox", "verdicts near a limit and judging times may differ"),
    "commits": ("commit", "the code is not the same"),
    "hardware": ("hardware", "wall times cannot be compared, and another CPU may round otherwise"),
    "package versions": ("versions", "numbers may differ slightly"),
}


def _provenance(groups: Sequence[Group]) -> Iterable[str]:
    runs = [run for group in groups for run in group.runs]
    for words, (key, consequence) in PROVENANCE.items():
        values = _told_apart([run.info[key] for run in runs if run.info.get(key) is not None])
        if len(values) > 1:
            shown = f" ({join_names(values)})" if max(map(len, values)) <= 60 else ""
            yield f"The runs have {len(values)} different {words}{shown}: {consequence}."
    unknown = [run.name for run in runs if not run.info.get("commit")]
    if unknown:
        yield f"No commit was recorded for {join_names(unknown)}: the code cannot be found again."
    # The recorder marks a changed working tree with a plus sign.
    changed = [run.name for run in runs if str(run.info.get("commit")).endswith("+")]
    if changed:
        yield f"The code had uncommitted changes in {join_names(changed)}."


def _told_apart(facts: Sequence[Any]) -> list[str]:
    """The different ones, sorted, in words; of mappings the name, or else what differs."""
    if not all(isinstance(fact, dict) for fact in facts):
        return sorted({as_text(fact) for fact in facts})
    keys = differing_keys(facts)
    values = {as_text({key: fact.get(key) for key in keys}) for fact in facts}
    names = {as_text(fact.get("name")) for fact in facts}
    return sorted(names if len(names) == len(values) else values)


def _evaluations(stages: Sequence[EvaluatedModel]) -> Iterable[str]:
    problems = {stage.label: _problems(stage) for stage in stages}
    if len(set(problems.values())) > 1:
        sizes = {label: len(names) for label, names in problems.items()}
        yield f"Not every row was evaluated on the same problems (their number: {_range(sizes)})."
    sizes = {stage.label: _samples(stage) for stage in stages}
    if len(set(sizes.values())) > 1:
        yield (
            f"Samples per problem differ, {_range(sizes)}: distinct-2 and distinct / accepted "
            "cannot be compared between them."
        )
    for stage in stages:
        lost = sum(int((part["verdict"] == "INFRA_ERROR").sum()) for part in stage.samples)
        if lost:
            total = sum(map(len, stage.samples))
            yield f"{stage.label}: the judge failed on {lost} of {total} samples, left uncounted."


def _thin(stages: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Diversity among accepted programs, where few problems have enough of them."""
    for metric in (DISTINCT, "edit_distance"):
        counts = {}
        for stage in stages:
            per_run = stage.problems_defined(metric)
            if 0 < sum(per_run) < FEW_PROBLEMS * len(per_run):
                counts[stage.label] = sum(per_run) / len(per_run)
        if counts:
            shown = join_names([f"{label} ({count:.3g})" for label, count in counts.items()])
            yield f"{TITLES[metric]} rests on few problems: {shown}; do not build on it."


def _problems(stage: EvaluatedModel) -> frozenset[str]:
    return frozenset(name for samples in stage.samples for name in samples["problem"].unique())


def _samples(stage: EvaluatedModel) -> int:
    return max(stage.sample_counts)


def _range(amounts: dict[str, float]) -> str:
    """The least and the greatest, and whose they are."""
    low, high = min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__)
    return f"from {amounts[low]:,.0f} ({low}) to {amounts[high]:,.0f} ({high})"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
