"""What a reader of a report must know before believing it, found in the runs, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from analysis.aggregate import Stage, budget, samples_per_problem
from analysis.groups import Group, differing_keys, plain
from analysis.metrics import DRAWN, METRIC
from analysis.runs import Run

FEW_SEEDS = 5
FEW_PROBLEMS = 10
BUDGET_SLACK = 1.1
BUDGET_NAMES = {
    "generated_tokens": "generated tokens",
    "judged_programs": "judged programs",
    "optimiser_steps": "optimiser steps",
}


def caveats(groups: Sequence[Group], stages: Sequence[Stage]) -> list[str]:
    """One sentence or two for each thing that limits what the tables show; most weighty first."""
    found: list[str] = []
    for check in (_unfinished, _left_out, _engines, _seeds, _budgets, _provenance):
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
                f"{group.label}: {_list(behind)} did not reach the evaluation at step "
                f"{group.last_step} and {_are(behind)} left out of the final numbers."
            )
        if not group.complete:
            yield f"{group.label}: no evaluation at all, so it has no row in the result table."
        elif group.last_step == 0:
            yield f"{group.label}: evaluated before training only, so it has no row of its own."
        if group.repeats:
            names = [run.name for run in group.repeats]
            yield (
                f"{group.label}: {_list(names)} {_are(names)} left out, because another run with "
                "the same settings and seed got as far or further."
            )


def _engines(groups: Sequence[Group]) -> Iterable[str]:
    """Where what wrote the responses and what learned from them were not of one mind."""
    for group in groups:
        wrong = [run.name for run in group.runs if _mismatched(run)]
        if wrong:
            yield (
                f"{group.label}: in {_list(wrong)} the engine's log-probs were not the learner's "
                "(see mismatch/mean), so the responses came from another policy than was assumed."
            )
        if group.settings.get("engine.correction") == "truncate":
            bound = plain(group.settings["engine.correction_bound"])
            yield (
                f"{group.label}: the ratio is corrected for what engine and learner differ by, "
                f"with weights of at most {bound}."
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
            f"One seed only: {_list(single)}. These intervals cover the choice of problems and "
            "the sampling, not the luck of training; another seed may fall outside."
        )
    if few:
        yield (
            f"Fewer than {FEW_SEEDS} seeds: {_list(few)}. The spread between seeds is itself "
            "poorly known, so read the intervals as rough."
        )


def _budgets(groups: Sequence[Group]) -> Iterable[str]:
    unequal = []
    for name, words in BUDGET_NAMES.items():
        spent = {}
        for group in groups:
            amounts = [budget(run)[name] for run in group.complete]
            if amounts and min(amounts) > 0:
                spent[group.label] = sum(amounts) / len(amounts)
        if spent and max(spent.values()) > BUDGET_SLACK * min(spent.values()):
            unequal.append(f"{words} {_range(spent)}")
    if unequal:
        yield f"The groups did not spend the same: {'; '.join(unequal)}."


def _provenance(groups: Sequence[Group]) -> Iterable[str]:
    runs = [run for group in groups for run in group.runs]
    consequences: dict[str, tuple[str, Callable[[Run], object]]] = {
        "data hashes": ("the problems are not the same", lambda r: r.info.get("data_hash")),
        "judge versions": ("a program may be judged otherwise", _info("judge_version")),
        "sandboxes": ("verdicts near a limit and judging times may differ", _info("sandbox")),
        "commits": ("the code is not the same", _info("commit")),
        "hardware": ("wall times cannot be compared", _info("hardware")),
        "package versions": ("numbers may differ slightly", _info("versions")),
    }
    for words, (consequence, read) in consequences.items():
        values = {str(read(run)) for run in runs if read(run) is not None}
        if len(values) > 1:
            shown = f" ({_list(sorted(values))})" if max(map(len, values)) <= 40 else ""
            yield f"The runs have {len(values)} different {words}{shown}: {consequence}."
    unknown = [run.name for run in runs if not run.info.get("commit")]
    if unknown:
        yield f"No commit was recorded for {_list(unknown)}: the code cannot be found again."
    # The recorder marks a changed working tree with a plus sign.
    changed = [run.name for run in runs if str(run.info.get("commit")).endswith("+")]
    if changed:
        yield f"The code had uncommitted changes in {_list(changed)}."


def _info(key: str) -> Callable[[Run], object]:
    return lambda run: run.info.get(key)


def _evaluations(stages: Sequence[Stage]) -> Iterable[str]:
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
        verdicts = [run.evaluation(stage.step)["verdict"] for run in stage.runs]
        lost = sum(int((verdict == "INFRA_ERROR").sum()) for verdict in verdicts)
        if lost:
            total = sum(map(len, verdicts))
            yield f"{stage.label}: the judge failed on {lost} of {total} samples, left uncounted."


def _thin(stages: Sequence[Stage]) -> Iterable[str]:
    """Diversity among accepted programs, where few problems have enough of them."""
    for metric in (f"distinct_of_{DRAWN}", "edit_distance"):
        counts = {}
        for stage in stages:
            per_run = [int((scores["metric"] == metric).sum()) for scores in stage.scores]
            if 0 < sum(per_run) < FEW_PROBLEMS * len(per_run):
                counts[stage.label] = sum(per_run) / len(per_run)
        if counts:
            shown = _list([f"{label} ({count:g})" for label, count in counts.items()])
            yield f"{METRIC[metric].title} rests on few problems: {shown}; do not build on it."


def _problems(stage: Stage) -> frozenset[str]:
    return frozenset(
        name for run in stage.runs for name in run.evaluation(stage.step)["problem"].unique()
    )


def _samples(stage: Stage) -> int:
    return max(samples_per_problem(run.evaluation(stage.step)) for run in stage.runs)


def settings_that_differ(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Dotted key → value per group, for settings outside `algo` that are not the same in all."""
    settings = [group.settings for group in groups]
    keys = [key for key in differing_keys(settings) if key.split(".")[0] != "algo"]
    return {key: [plain(each[key]) if key in each else "–" for each in settings] for key in keys}


def _range(amounts: dict[str, float]) -> str:
    """The least and the greatest, and whose they are."""
    low, high = min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__)
    return f"from {amounts[low]:,.0f} ({low}) to {amounts[high]:,.0f} ({high})"


def _list(names: Sequence[str]) -> str:
    shown = list(names[:6]) + ([f"{len(names) - 6} more"] if len(names) > 6 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
