"""Caveats in plain words: properties of the runs that limit the conclusions from a report."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.budgets import BUDGET_TITLES, final_budget
from analysis.conversations import turn_limit
from analysis.groups import Group, as_text, differing_keys, join_names
from analysis.metrics import DISTINCT, TITLES
from analysis.models import EvaluatedModel, common_problems
from analysis.packed import mean_count
from analysis.runs import Run

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


FEW_PROBLEMS = 10


def evaluation_caveats(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Yield a sentence or two for each caveat, the most important first."""
    yield from _evaluations(models)
    yield from _missing_temperatures(models)
    yield from _few_evaluated(models)
    yield from _few_problems(models)
    yield from _different_problems(models)


def _evaluations(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    problems = {model.label: _problems(model) for model in models}
    if len(set(problems.values())) > 1:
        sizes = {label: len(names) for label, names in problems.items()}
        yield f"Not every row was evaluated on the same problems (counts: {extremes(sizes)})."
    sizes = {model.label: max(model.sample_counts) for model in models}
    if len(set(sizes.values())) > 1:
        yield (
            f"Samples per problem differ, {extremes(sizes)}: distinct-2 and distinct / accepted "
            "cannot be compared between them."
        )
    for model in models:
        further = (samples for parts in model.further_samples for samples in parts.values())
        all_samples = [*model.samples, *further]
        lost = sum(int((part["verdict"] == "INFRA_ERROR").sum()) for part in all_samples)
        if lost:
            total = sum(map(len, all_samples))
            yield f"{model.label}: the judge failed on {lost} of {total} samples (left out)."


def _missing_temperatures(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Runs without an evaluation at a further temperature that others have."""
    runs = [pair for m in models for pair in zip(m.runs, m.further_samples, strict=True)]
    for temperature in sorted({t for _, samples in runs for t in samples}):
        missing = [run.name for run, samples in runs if temperature not in samples]
        if missing:
            yield (
                f"Not evaluated at temperature {temperature:g}, and left out of the numbers there: "
                f"{join_names(dict.fromkeys(missing))}."
            )


def _few_evaluated(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Evaluations on so few problems that resampling them says little of other problems."""
    fewest = min((len(_problems(model)) for model in models), default=FEW_PROBLEMS)
    if fewest < FEW_PROBLEMS:
        yield (
            f"Evaluated on {fewest} problem{'s' * (fewest > 1)} only, so intervals over problems "
            "cannot be relied on."
        )


def _few_problems(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Diversity metrics for which few problems have enough accepted programs."""
    for metric in (DISTINCT, "edit_distance"):
        counts = {}
        for model in models:
            per_run = model.problems_defined(metric)
            if 0 < sum(per_run) < FEW_PROBLEMS * len(per_run):
                counts[model.label] = sum(per_run) / len(per_run)
        if counts:
            shown = join_names(
                [f"{label} ({mean_count(count)})" for label, count in counts.items()]
            )
            yield f"{TITLES[metric]} is based on few problems: {shown}; do not rely on it."


def _different_problems(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """The trained models whose distinct_of_5 is a mean over other problems, with their numbers."""
    trained = [model for model in models if not model.is_base and DISTINCT in model.grids]
    if len(trained) < 2:
        return
    common = common_problems(trained, DISTINCT)
    counts = {model.label: float(np.mean(model.problems_defined(DISTINCT))) for model in trained}
    if all(count == len(common) for count in counts.values()):
        return
    shown = join_names([f"{label} {mean_count(count)}" for label, count in counts.items()])
    yield (
        f"{TITLES[DISTINCT]} is a mean over different problems for each group ({shown}); "
        f"{len(common)} are common to all, and its column _common in table.csv is over these. "
        "Distinct accepted of k is over every problem."
    )


def _problems(model: EvaluatedModel) -> frozenset[str]:
    return frozenset(name for samples in model.samples for name in samples["problem"].unique())


def extremes(amounts: Mapping[str, float]) -> str:
    """Return the least and the greatest amount, each with its label."""
    low, high = min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__)
    low_text, high_text = (
        f"{amount:,.0f}" if amount < 1e10 else f"{amount:.3g}".replace("e+", "e")  # FLOPs
        for amount in (amounts[low], amounts[high])
    )
    return f"from {low_text} ({low}) to {high_text} ({high})"


DIGESTS = "digests.json"  # experiments.run_dir.provenance writes it


def differing_code(runs: Sequence[Run]) -> list[str] | None:
    """Return, sorted, the files that runs import in different versions; None: not recorded.

    A file that only one run imports is in no difference; one that had changed when a run was
    resumed is.
    """
    versions = dict[str, set[str]]()
    for run in runs:
        code = _code(run)
        if code is None:
            return None
        for file, digest in code.items():
            versions.setdefault(file, set()).add(digest)
    resumed = (entry for run in runs for entry in run.info.get("resumed") or ())
    changed = {file for entry in resumed for file in entry.get("changed", {}).get("code", ())}
    return sorted(changed | {file for file, found in versions.items() if len(found) > 1})


def code_caveats(groups: Sequence[Group]) -> Iterator[str]:
    """Yield sentences on groups whose runs are of different code, and on the commits of all."""
    for group in groups:
        if files := differing_code(group.runs):
            yield (
                f"{group.label}: the code of its runs differs in {join_names(files)}, so its "
                "numbers are of several versions. The command of their sweep or study makes the "
                "older ones anew with again=changed, and run.py from=FOLDER a single run."
            )
    runs = [run for group in groups for run in group.runs]
    yield from _commits(runs)
    if unknown := [run.name for run in runs if not run.info.get("commit")]:
        yield f"No commit was recorded for {join_names(unknown)}: the code cannot be identified."
    yield from _uncommitted([run for run in runs if _is_uncommitted(run)])


def _commits(runs: Sequence[Run]) -> Iterator[str]:
    commits = sorted({str(run.info["commit"]) for run in runs if run.info.get("commit")})
    files = differing_code(runs)
    consequence = "the code is not the same"
    if files is not None:
        names = f"differ in {join_names(files)}" if files else "are the same"
        consequence = f"the files of code that runs have in common {names}"
    if len(commits) > 1:
        listed = join_names(commits)
        yield f"The runs have {len(commits)} different commits ({listed}): {consequence}."
    elif files:
        yield f"The runs have the same commit with other changes: {consequence}."


def _uncommitted(runs: Sequence[Run]) -> Iterator[str]:
    """Yield which files had uncommitted changes, but for new ones that none of the runs used.

    A new file of conf/ is not named either: its values stand in config.yaml.
    """
    codes = [_code(run) for run in runs]
    used = None if None in codes else {file for code in codes if code for file in code}
    by_files: dict[tuple[str, ...] | None, list[str]] = {}
    for run in runs:
        files = _changed_files(run)
        if files is not None:
            files = {
                file: is_new
                for file, is_new in files.items()
                if not is_new or not (_is_setting(file) or (used is not None and file not in used))
            }
        by_files.setdefault(None if files is None else tuple(files), []).append(run.name)
    for named, names in by_files.items():
        if named is None:
            yield f"The code had uncommitted changes in {join_names(names)}."
        elif named:
            yield f"{join_names(named)} had uncommitted changes in {join_names(names)}."


def _changed_files(run: Run) -> dict[str, bool] | None:
    """Return file → whether it was new, of the patch in a run folder; None if it was not kept."""
    diff = run.info.get("diff")
    name = diff.get("file") if isinstance(diff, dict) else None
    try:
        lines = (run.path / str(name)).read_text(errors="replace").split("\n")
    except OSError:
        return None
    files: dict[str, bool] = {}
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("diff --git "):  # lines of content begin with a blank, + or -
            file = re.sub(r'.* "?b/(.*?)"?', r"\1", line)  # odd names stand in quotes
            files[file] = after.startswith("new file")
    return files or None


def _is_setting(file: str) -> bool:
    return file.startswith("conf/") and file.endswith(".yaml")


def _is_uncommitted(run: Run) -> bool:
    """Whether files that git tracks had changed (a plus sign), or new ones were there (`diff`)."""
    return str(run.info.get("commit")).endswith("+") or bool(run.info.get("diff"))


def _code(run: Run) -> dict[str, str] | None:
    """Return file → digest of the code that a run imported; None where no such record is."""
    try:
        return dict(json.loads((run.path / DIGESTS).read_text())["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
