"""What an experiment's runs share, and the settings in which its groups differ, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from analysis.load.groups import Group, differing_keys, flatten, plain, spelling
from analysis.load.run_folders import Run
from analysis.stats.tables import sandbox


def facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(what, in words): model, problems, evaluation, judge and machine, as far as recorded.

    Where the runs differ, two values stand beside each other, and of more only their number.
    """
    said = {
        "model": (_model, _parameters),
        "problems": (_problems, _left_out),
        "evaluation": (_evaluation,),
        "judge": (_judge,),
        "machine": (_machine,),
    }
    found = []
    for what, readers in said.items():
        parts = [_either(dict.fromkeys(filter(None, map(read, runs)))) for read in readers]
        if text := "; ".join(filter(None, parts)):
            found.append((what, text))
    return found


def _either(values: Collection[str]) -> str:
    return " or ".join(values) if len(values) <= 2 else f"{len(values)} different"


def _config(run: Run, key: str) -> Any:
    return flatten(run.config).get(key)


def _model(run: Run) -> str:
    return plain(_config(run, "model.name") or "")


def _parameters(run: Run) -> str:
    count = run.info.get("parameters")
    return f"{count:,} parameters" if count else ""


def _problems(run: Run) -> str:
    counts = [
        f"{run.info[key]:,} {words}"
        for key, words in (("train_problems", "to train on"), ("eval_problems", "to evaluate"))
        if run.info.get(key) is not None
    ]
    return ", ".join([plain(_config(run, "task.name") or ""), *counts])


def _left_out(run: Run) -> str:
    task = run.info.get("task")
    reasons = task.get("left_out") if isinstance(task, dict) else None
    if not reasons:
        return ""
    most = sorted(reasons.items(), key=lambda item: -item[1])
    return f"{sum(reasons.values()):,} left out: " + ", ".join(f"{why} {n:,}" for why, n in most)


def _evaluation(run: Run) -> str:
    words = {
        "split": "{} split",
        "samples": "{} samples a problem",
        "temperature": "temperature {}",
        "top_p": "top-p {}",
    }
    values = {key: _config(run, f"eval.{key}") for key in words}
    return ", ".join(words[key].format(plain(v)) for key, v in values.items() if v is not None)


def _judge(run: Run) -> str:
    version, place = run.info.get("judge_version"), sandbox(run)
    name, strength = place["sandbox"], place["sandbox_strength"]
    where = f"sandbox {name} ({strength})" if strength else name and f"sandbox {name}"
    return ", ".join(filter(None, [version and f"version {version}", where]))


def _machine(run: Run) -> str:
    hardware = run.info.get("hardware")
    if not isinstance(hardware, dict):
        return plain(hardware) if hardware else ""
    return plain({name: value for name, value in hardware.items() if value is not None})


def settings_that_differ(groups: Sequence[Group]) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """(key, [(value, labels of the groups that have it), …]) for settings that are not the same.

    An algorithm's own settings are compared between the groups of that algorithm only.
    """
    keys = [k for k in differing_keys([g.settings for g in groups]) if not _of_algorithm(k)]
    table = [(key, _by_value(key, groups)) for key in keys]
    for algo in sorted({group.algo for group in groups}):
        same = [group for group in groups if group.algo == algo]
        own = [k for k in differing_keys([g.settings for g in same]) if _of_algorithm(k)]
        table += [(key, _by_value(key, same)) for key in own]
    return table


def _of_algorithm(key: str) -> bool:
    return key.split(".")[0] == "algo"


def _by_value(key: str, groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    values: dict[str, tuple[str, list[str]]] = {}
    for group in groups:
        held = key in group.settings
        spelt = spelling(group.settings[key]) if held else ""
        shown = plain(group.settings[key]) if held else "not set"
        values.setdefault(spelt, (shown, []))[1].append(group.label)
    return list(values.values())
