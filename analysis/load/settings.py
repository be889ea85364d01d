"""Settings in words: those shared by an experiment's runs, and those that differ by group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from analysis.load.groups import Group, as_text, canonical_json, differing_keys, flatten, join_names
from analysis.load.run_folders import Run


def shared_settings(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return (subject, description) for model, problems, evaluation, judge and machine.

    Subjects that were not recorded are left out. Where runs differ, two descriptions are joined by
    "or". Of more than two, only the number is given.
    """
    describers = {
        "model": (_model, _parameters),
        "problems": (_problems, _left_out_problems),
        "evaluation": (_evaluation,),
        "judge": (_judge,),
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
