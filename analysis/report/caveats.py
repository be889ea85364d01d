"""Caveats in plain words: properties of the runs that limit the conclusions from a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from analysis.load.code_versions import code_caveats, differing_code
from analysis.load.groups import Group, as_text, differing_keys, join_names
from analysis.load.run_folders import Run
from analysis.metrics.evaluated_models import EvaluatedModel
from analysis.metrics.evaluation_caveats import evaluation_caveats, extremes
from analysis.stats.tables import BUDGET_TITLES, final_budget
from analysis.turns.counts import turn_limit

FEW_SEEDS = 5
IDLE_SHARE = 0.01  # of the steps, from which on steps without an update are named
BUDGET_SLACK = 1.1  # budgets within this factor count as equal


def caveats(groups: Sequence[Group], models: Sequence[EvaluatedModel]) -> list[str]:
    """Return a sentence or two for each caveat, the most important first."""
    sentences: list[str] = []
    for check in (
        _packed,
        _unfinished,
        _left_out,
        _no_success,
        _off_policy_ratios,
        _foreign_samples,
        _steps_without_update,
        _training_problems,
        _different_turns,
        _test_split,
        _few_seeds,
        _unequal_budgets,
        _charged_again,
        _tuning,
        code_caveats,
        _provenance,
    ):
        sentences.extend(check(groups))
    sentences.extend(evaluation_caveats(models))
    return sentences


def _packed(groups: Sequence[Group]) -> Iterable[str]:
    if any(run.packed for group in groups for run in group.runs):
        yield (
            "From a packed study: counts of samples, without their programs. Whether some steps "
            "left the weights as they were, and whether the engine's log-probs were the learner's, "
            "is not in it, so neither is checked here."
        )


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
            seeds = {run.seed for run in group.repeats}
            files = differing_code(
                [*group.repeats, *(run for run in group.runs if run.seed in seeds)]
            )
            code = f" The code of the two differs in {join_names(files)}." if files else ""
            yield (
                f"{group.label}: {join_names(names)} {_are(names)} left out, because another run "
                f"with the same settings and seed got as far or further.{code}"
            )


def _no_success(groups: Sequence[Group]) -> Iterable[str]:
    """Groups that learn from drawn responses alone, none of which was accepted."""
    labels = []
    for group in groups:
        if group.settings.get("train.offline_share") or group.settings.get("train.replay_share"):
            continue
        shares = [run.metrics["accepted_share"] for run in group.complete if _counts_accepted(run)]
        if shares and max(share.max() for share in shares) == 0:
            labels.append(group.label)
    if labels:
        yield (
            f"No response drawn in training was accepted: {_all_or_names(labels, groups)}. "
            "Such runs show nothing of how an algorithm learns from its rewards."
        )


def _counts_accepted(run: Run) -> bool:
    """Return whether a run recorded how many fresh responses were accepted."""
    return "accepted_share" in run.metrics and bool(run.metrics["accepted_share"].notna().any())


def _off_policy_ratios(groups: Sequence[Group]) -> Iterable[str]:
    """Groups whose rollout policy was not the one that the ratio assumes."""
    for group in groups:
        mismatched = [run.name for run in group.runs if _is_mismatched(run)]
        if mismatched:
            yield (
                f"{group.label}: in {join_names(mismatched)} the engine's log-probs differ from "
                "the learner's beyond the bound (see mismatch/mean), so the responses came from a "
                "policy other than the assumed one."
            )
        if (correction := group.settings.get("train.correction", "none")) != "none":
            yield (
                f"{group.label}: the ratio is corrected for the difference from the rollout policy "
                f"(train.correction={correction})."
            )
        if (substitute := group.settings.get("train.missing_logprobs", "reject")) != "reject":
            yield (
                f"{group.label}: responses without rollout log-probs take substitutes in the ratio "
                f"(train.missing_logprobs={substitute}), which is then not the ratio to the policy "
                "that generated them."
            )


def _foreign_samples(groups: Sequence[Group]) -> Iterable[str]:
    """Groups that trained on samples whose generation is not in their budget."""
    by_sources: dict[str, list[str]] = {}
    for group in groups:
        sources = [
            f"{key}=[{','.join(values)}]"
            for key in ("replay.from_runs", "replay.files")
            if (values := group.settings.get(key))
        ]
        if sources:
            by_sources.setdefault(join_names(sources), []).append(group.label)
    for listed_sources, labels in by_sources.items():
        yield (
            f"{join_names(labels)} learned from samples of other policies ({listed_sources}); "
            "their judging is charged, but generating them and training those policies is not."
        )


def _steps_without_update(groups: Sequence[Group]) -> Iterable[str]:
    """Groups in which many batches held nothing that the loss learns from, e.g. no success."""
    shares = {}
    for group in groups:
        taken = [
            run.metrics[name].diff().fillna(run.metrics[name])
            for run in group.complete
            if (name := "budget/optimiser_steps") in run.metrics and not run.packed
        ]
        if steps := sum(map(len, taken)):
            shares[group.label] = sum(int((each == 0).sum()) for each in taken) / steps
    many = [f"{label} ({share:.0%})" for label, share in shares.items() if share >= IDLE_SHARE]
    if many:
        yield (
            "Some batches held nothing to learn from, so their steps left the weights as they were "
            f"(share of the steps): {join_names(many)}."
        )


def _is_mismatched(run: Run) -> bool:
    """Return whether any log-prob check had a mean difference above its bound, or NaN."""
    if "mismatch/bound" not in run.metrics:
        return False
    checked = run.metrics[run.metrics["mismatch/bound"].notna()]
    return not (checked["mismatch/mean"] <= checked["mismatch/bound"]).all()


def _training_problems(groups: Sequence[Group]) -> Iterable[str]:
    """Groups that were evaluated on the problems that they were trained on."""
    labels = [group.label for group in groups if group.runs[0].on_training_problems]
    if labels:
        yield (
            "Evaluated on the problems that were trained on (eval.split=train): "
            f"{_all_or_names(labels, groups)}. These numbers say what was learnt of those "
            "problems, not how many other problems the model solves; eval.split=choose is for that."
        )


def _different_turns(groups: Sequence[Group]) -> Iterable[str]:
    """Groups whose evaluations let a conversation have other numbers of answers."""
    most = {g.label: max(map(turn_limit, g.complete)) for g in groups if g.complete}
    if len(set(most.values())) > 1:
        yield (
            f"Evaluated in conversations of different lengths, {extremes(most)} answers at most. A "
            "response is a whole conversation there, so pass@k gives the groups different numbers "
            "of attempts; 1@k compares them at one submission and equal tokens."
        )


def _test_split(groups: Sequence[Group]) -> Iterable[str]:
    """Groups that were evaluated on the test split outside a study's final evaluation."""
    labels = [
        group.label
        for group in groups
        if any("test_split_warning" in run.info for run in group.runs)
    ]
    if labels:
        names = _all_or_names(labels, groups)
        yield (
            f"On the test split outside a study's final evaluation: {names}. A default "
            "or design that is chosen by these numbers is chosen on the test problems; "
            "eval.split=choose is for that."
        )


def _few_seeds(groups: Sequence[Group]) -> Iterable[str]:
    single = [group.label for group in groups if len(group.complete) == 1]
    few = [group.label for group in groups if 1 < len(group.complete) < FEW_SEEDS]
    if single:
        yield (
            f"One seed only: {_all_or_names(single, groups)}. These intervals cover the choice of "
            "problems and the sampling, but not training randomness; in simulations they "
            "contained the truth in 49 to 95 of 100 cases, the fewer the more seeds differ. One "
            "seed cannot show a difference between algorithms."
        )
    if few:
        yield (
            f"Fewer than {FEW_SEEDS} seeds: {_all_or_names(few, groups)}. The spread between "
            "seeds is itself uncertain, which makes intervals wide; in simulations they contained "
            "the truth in 92 to 97 of 100 cases at 2 seeds and in 94 to 97 at 3."
        )


def _tuning(groups: Sequence[Group]) -> Iterable[str]:
    """The tuning of each group (`tuned`), if any group was tuned."""
    by_tuning: dict[str, list[str]] = {}
    for group in groups:
        by_tuning.setdefault(str(group.runs[0].config.get("tuned") or ""), []).append(group.label)
    if not any(by_tuning):
        return
    untuned = ""
    if "" in by_tuning:
        untuned = f" Not tuned, run with the given settings: {join_names(by_tuning.pop(''))}."
    by_trials: dict[str, list[str]] = {}  # the trials are often the same for all groups
    for tuning, labels in sorted(by_tuning.items()):
        trials, _, table = tuning.partition(", table ")
        source = f" ({table})" if table else ""
        by_trials.setdefault(trials, []).append(f"{join_names(labels)}{source}")
    tuned = "; ".join(f"by {trials}: {', '.join(names)}" for trials, names in by_trials.items())
    yield f"Tuned {tuned}.{untuned}"


def _all_or_names(labels: Sequence[str], groups: Sequence[Group]) -> str:
    return f"all {len(labels)} groups" if len(labels) == len(groups) > 3 else join_names(labels)


def _unequal_budgets(groups: Sequence[Group]) -> Iterable[str]:
    unequal = []
    for name, title in BUDGET_TITLES.items():
        spent = {}
        for group in groups:
            amounts = [final_budget(run)[name] for run in group.complete if group.last_step > 0]
            mean = sum(amounts) / len(amounts) if amounts else math.nan
            if not math.isnan(mean):
                spent[group.label] = mean
        if spent and max(spent.values()) > BUDGET_SLACK * min(spent.values()):
            unequal.append(f"{title} {extremes(spent)}")
    if unequal:
        yield f"The groups spent different budgets: {'; '.join(unequal)}."


def _charged_again(groups: Sequence[Group]) -> Iterable[str]:
    shares = {group.label: max(map(_charged_share, group.runs), default=0.0) for group in groups}
    large = {label: share for label, share in shares.items() if share > BUDGET_SLACK - 1}
    if large:
        yield (
            f"Up to {max(large.values()):.0%} of the wall time of "
            f"{_all_or_names(list(large), groups)} was spent by another run, on judging or on "
            "evaluating the base model, and is charged here again."
        )


def _charged_share(run: Run) -> float:
    if not len(run.metrics) or "time/charged_s" not in run.metrics:
        return 0.0
    last = run.metrics.iloc[-1]
    return float(last["time/charged_s"] / last["time/total_s"])


# Keys of run.json that should be the same in all runs, and the consequence if they are not.
PROVENANCE = {
    "data hashes": ("data_hash", "the problems are not the same"),
    "judge versions": ("judge_version", "a program may get another verdict"),
    "sandboxes": ("sandbox", "verdicts near a limit and judging times may differ"),
    "hardware": ("hardware", "wall times cannot be compared, and rounding may differ"),
    "package versions": ("versions", "numbers may differ slightly"),
}


def _provenance(groups: Sequence[Group]) -> Iterable[str]:
    runs = [run for group in groups for run in group.runs]
    for title, (key, consequence) in PROVENANCE.items():
        values = _distinct_values([run.info[key] for run in runs if run.info.get(key) is not None])
        if len(values) > 1:
            shown = f" ({join_names(values)})" if max(map(len, values)) <= 60 else ""
            yield f"The runs have {len(values)} different {title}{shown}: {consequence}."


def _distinct_values(values: Sequence[Any]) -> list[str]:
    """Return the distinct values as text, sorted; of mappings, their name or what differs."""
    if not all(isinstance(value, dict) for value in values):
        return sorted({as_text(value) for value in values})
    keys = differing_keys(values)
    differences = {as_text({key: value.get(key) for key in keys}) for value in values}
    names = {as_text(value.get("name")) for value in values}
    return sorted(names if len(names) == len(differences) else differences)


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
