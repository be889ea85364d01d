"""Settings in words: those shared by an experiment's runs, and those that differ by group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from analysis.load.groups import Group, as_text, canonical_json, differing_keys, flatten, join_names
from analysis.load.run_folders import Run

PROBLEM_USES = {"train": "training", "eval": "evaluation"}  # key in run.json → words


def shared_settings(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return (subject, description) for model, problems, evaluation, reward, judge and machine.

    Subjects that were not recorded are left out. Where runs differ, two descriptions are joined by
    "or". Of more than two, only the number is given.
    """
    describers = {
        "model": (_model, _parameters),
        "problems": (_problems, _left_out_problems),
        "evaluation": (_evaluation,),
        "reward": (_cheap_programs,),
        "judge": (_judge,),
        "judge errors": (_judge_errors,),
        "machine": (_machine,),
    }
    descriptions = []
    for subject, functions in describers.items():
        parts = [_alternatives(dict.fromkeys(filter(None, map(f, runs)))) for f in functions]
        if text := "; ".join(filter(None, parts)):
            descriptions.append((subject, text))
    return descriptions


def _alternatives(values: Collection[str]) -> str:
    return " or ".join(values) if len(values) <= 2 else f"{len(values)} different"


def _config(run: Run, key: str) -> Any:
    return flatten(run.config).get(key)


def _model(run: Run) -> str:
    return as_text(_config(run, "model.name") or "")


def _parameters(run: Run) -> str:
    count = run.info.get("parameters")
    return f"{count:,} parameters" if count else ""


def _problems(run: Run) -> str:
    counts = [
        f"{run.info[key]:,} {words}"
        for key, words in (("train_problems", "for training"), ("eval_problems", "for evaluation"))
        if run.info.get(key) is not None
    ]
    return ", ".join([as_text(_config(run, "task.name") or ""), *counts])


def _left_out_problems(run: Run) -> str:
    task = run.info.get("task")
    counts = task.get("left_out") if isinstance(task, dict) else None
    if not counts:
        return ""
    descending = sorted(counts.items(), key=lambda item: -item[1])
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in descending)
    return f"{sum(counts.values()):,} left out: {reasons}"


def _evaluation(run: Run) -> str:
    formats = {
        "split": "{} split",
        "samples": "{} samples per problem",
        "temperature": "temperature {}",
        "top_p": "top-p {}",
        "further_temperatures": "at the start and the end also temperature {}",
    }
    values = {key: _config(run, f"eval.{key}") for key in formats}
    if further := values["further_temperatures"]:
        values["further_temperatures"] = join_names(map(as_text, further))
    else:
        values["further_temperatures"] = None
    return ", ".join(
        formats[key].format(as_text(value)) for key, value in values.items() if value is not None
    )


def _judge(run: Run) -> str:
    version, recorded = run.info.get("judge_version"), sandbox(run)
    name, strength = recorded["sandbox"], recorded["sandbox_strength"]
    description = f"sandbox {name} ({strength})" if strength else name and f"sandbox {name}"
    return ", ".join(filter(None, [version and f"version {version}", description]))


def _cheap_programs(run: Run) -> str:
    """What the run's problems pay for programs that solve nothing."""
    earnings = run.info.get("cheap_programs") or {}
    parts = [
        f"{_earned(earnings[use])} {words} problems"
        for use, words in PROBLEM_USES.items()
        if earnings.get(use)
    ]
    text = f"programs that solve nothing earn it on {' and on '.join(parts)}" if parts else ""
    kind = _config(run, "task.reward.kind")
    if "train" in earnings and kind not in (None, "binary"):
        name, share = max(earnings["train"]["mean_share"].items(), key=lambda item: item[1])
        text += f"; under {kind} rewards the best of them ({name}) passes {100 * share:.1f} % "
        text += "of the tests of a training problem on average"
    return text


def _earned(earnings: dict[str, Any]) -> str:
    compared = f"{earnings['compared']:,}"
    if not earnings["earned_by_any"]:
        return f"none of {compared}"
    counts = sorted(earnings["earned"].items(), key=lambda item: -item[1])
    programs = ", ".join(f"{name}: {count:,}" for name, count in counts if count)
    return f"{earnings['earned_by_any']:,} ({programs}) of {compared}"


def _judge_errors(run: Run) -> str:
    """The judge's error rates on the run's problems, or the command that measures them."""
    recorded = run.info.get("judge_errors") or {}
    parts, unmeasured = [], []
    for use, words in PROBLEM_USES.items():
        if rates := recorded.get(use):
            text = " and ".join(filter(None, (_rate(rates, "right"), _rate(rates, "wrong"))))
            if text:
                part = f"{rates['measured_problems']:,} of {rates['problems']:,} {words} problems"
                parts.append(f"the judge {text} (of {part})")
            else:
                unmeasured.append(words)
    if unmeasured:
        command = recorded.get("command")
        cure = f"; run {command}" if command else ""
        parts.append(f"not measured on the {' and '.join(unmeasured)} problems{cure}")
    return "; ".join(parts)


def _rate(rates: dict[str, Any], label: str) -> str:
    """Return a rate like "rejects 0.9 % [0.4, 1.6] of 1,204 right ones"; "" without programs."""
    verb, key = {
        "right": ("rejects", "false_rejects"),
        "wrong": ("accepts", "false_accepts"),
    }[label]
    if not rates.get(key):
        return ""
    share, low, high = (f"{100 * value:.1f}" for value in rates[key])
    return f"{verb} {share} % [{low}, {high}] of {rates[label]:,} {label} programs"


def _machine(run: Run) -> str:
    hardware = run.info.get("hardware")
    if not isinstance(hardware, dict):
        return as_text(hardware) if hardware else ""
    return as_text({name: value for name, value in hardware.items() if value is not None})


def sandbox(run: Run) -> dict[str, str | None]:
    """Return the run's sandbox as columns: its name, and how strongly it isolates programs."""
    recorded = run.info.get("sandbox")
    if not isinstance(recorded, dict):
        return {"sandbox": recorded, "sandbox_strength": None}
    rest = {key: value for key, value in recorded.items() if key not in ("name", "strength")}
    strength = [str(recorded.get("strength") or ""), as_text(rest) if rest else ""]
    return {"sandbox": recorded.get("name"), "sandbox_strength": "; ".join(filter(None, strength))}


Setting = tuple[str, list[tuple[str, list[str]]]]  # key, [(value, labels of groups with it), …]


def differing_settings(groups: Sequence[Group]) -> list[Setting]:
    """Return the settings in which groups differ, each value with the labels of its groups.

    An algorithm's own settings are compared between the groups of that algorithm only.
    """
    keys = differing_keys([group.settings for group in groups])
    table = [(key, _labels_by_value(key, groups)) for key in keys if not _of_algorithm(key)]
    for algo in sorted({group.algo for group in groups}):
        same = [group for group in groups if group.algo == algo]
        keys = differing_keys([group.settings for group in same])
        table += [(key, _labels_by_value(key, same)) for key in keys if _of_algorithm(key)]
    return table


def _of_algorithm(key: str) -> bool:
    return key.split(".")[0] == "algo"


def _labels_by_value(key: str, groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    values: dict[str, tuple[str, list[str]]] = {}
    for group in groups:
        is_set = key in group.settings
        canonical = canonical_json(group.settings[key]) if is_set else ""
        text = as_text(group.settings[key]) if is_set else "not set"
        values.setdefault(canonical, (text, []))[1].append(group.label)
    return list(values.values())
