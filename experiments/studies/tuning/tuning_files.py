"""Files of tuning: the table of trials and re-scores, the winner's experiment, the summary."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from analysis.markdown import table
from experiments.config.composition import CONF
from experiments.config.schema import RunConfig
from experiments.studies.study import ROOT, Study
from experiments.studies.tuning.candidates import ATTEMPTS, Candidate
from experiments.studies.tuning.search_space import distance, edges
from experiments.studies.tuning.tuner import SCORE, Ranges, Tuner


def write_results(study_name: str, study: Study, tuner: Tuner, config: RunConfig) -> str:
    """Write the arm's table and the winner's experiment file; returns their paths, or what failed.

    They go to docs/results/ and conf/experiment/; for a study given by path, beside its file.
    """
    stem, folder = Path(study_name).stem, _folder(study_name)
    (folder / f"tuned-{stem}").mkdir(exist_ok=True)
    file = folder / f"tuned-{stem}" / f"{tuner.arm}.csv"
    rows = tuner.table()
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if not tuner.ranking():
        return f"{tuner.arm}: no trial and all its re-scores finished: {file}"
    at = folder if _is_path(study_name) else CONF / "experiment"
    winner = at / f"tuned_{stem}_{tuner.arm}.yaml"
    winner.write_text(_experiment(stem, study, tuner, config))
    return f"{tuner.arm}: {file}, {winner}"


def write_summary(study_name: str, tuners: Sequence[Tuner], ranges: Ranges) -> str:
    """Write STUDY.md beside the tables; returns its text."""
    text = summary(tuners, ranges)
    (_folder(study_name) / f"tuned-{Path(study_name).stem}.md").write_text(text + "\n")
    return text


def summary(tuners: Sequence[Tuner], ranges: Ranges) -> str:
    """The final table: each arm's winner, its scores, and how far it is from the edges."""
    rows = []
    for tuner in tuners:
        ranking = tuner.ranking()
        if not ranking:
            rows.append([tuner.arm, *["–"] * 6])
            continue
        best = ranking[0]
        rows.append(
            [
                tuner.arm,
                ", ".join(f"{key}={_text(value)}" for key, value in best.values.items()),
                f"{best.score:.4f}",
                _scores(best),
                _mean(best),
                ", ".join(_tied(ranking)) or "none",
                "; ".join(f"{key}: {where}" for key, where in _distances(tuner, best).items()),
            ]
        )
    heading = ["arm", "winner", "score", "re-scores", "mean ± s.e.", "ties", "distance from edge"]
    widened = [
        f"Widened: {each['key']}, {each['side']} edge (winner of {', '.join(each['arms'])})"
        for each in ranges.widenings
    ]
    at_edge = [
        f"Still at an edge: {tuner.arm}, {', '.join(sides)}"
        for tuner in tuners
        if (found := tuner.ranking()) and (sides := edges(found[0].values, tuner.space))
    ]
    left_out = [
        f"Left out: {tuner.arm}, trial {number}: a re-score failed {ATTEMPTS} times"
        for tuner in tuners
        for number in tuner.left_out()
    ]
    at_edge = at_edge or ["No winner stands at an edge"]
    lines = [f"Score: {SCORE}.", table(heading, rows), *widened, *left_out, *at_edge]
    return "\n\n".join(lines)


def _experiment(stem: str, study: Study, tuner: Tuner, config: RunConfig) -> str:
    """An experiment file: the arm with the winning values, and how they were found."""
    arm, ranking = tuner.arm, tuner.ranking()
    best = ranking[0]
    pairs = [override.partition("=")[::2] for override in study.arms[arm].overrides]
    own = {key: yaml.safe_load(value) for key, value in pairs if "." in key}
    how = (
        f"{tuner.target} trials ({' '.join(tuner.tuning.overrides)}), {_longer(tuner)}"
        f"{len(tuner.best())} of the best on {len(best.rescores)} fresh seeds{_at_length(tuner)}, "
        f"table tuned/{stem}-{arm}.csv"
    )
    lines = [
        f"python run.py experiment=tuned_{stem}_{arm}",
        f"Trial {best.trial} of {tuner.target}, by `python -m experiments.studies.tune "
        f"study={stem}`, at commit {_commits(tuner.rescore_runs(best))}.",
        f"Score ({SCORE}) on the split {config.eval.split}: {best.score:.4f}.",
        *([f"The longer run on the same seed: {best.longer:.4f}."] if best.longer else []),
        f"On fresh seeds, which decide: {_scores(best)}; mean {_mean(best)}.",
        f"Within one standard error: {', '.join(_tied(ranking)) or 'none'}.",
        *(f"{key}: {where}." for key, where in _distances(tuner, best).items()),
    ]
    head = "".join(f"# {line}\n" for line in lines)
    values = _nested(own | dict(best.values))
    return (
        f"# @package _global_\n{head}defaults:\n  - override /algo: {config.algo.name}\n"
        + yaml.safe_dump({"name": f"tuned_{stem}", "tuned": how, **values}, sort_keys=False)
    )


def _longer(tuner: Tuner) -> str:
    """How many trials had a longer run on their own seed, with a comma."""
    number = sum(each.longer is not None for each in tuner.finished())
    return f"{number} of the best again{_at_length(tuner)}, " if number else ""


def _at_length(tuner: Tuner) -> str:
    """What differs from a trial in its re-scores, in brackets."""
    overrides = tuner.tuning.rescore_overrides
    return f" ({' '.join(overrides)})" if overrides else ""


def _is_path(study_name: str) -> bool:
    return study_name.endswith((".yaml", ".yml"))


def _folder(study_name: str) -> Path:
    """docs/results, or beside a study given by path."""
    return Path(study_name).parent if _is_path(study_name) else ROOT / "docs" / "results"


def _tied(ranking: Sequence[Candidate]) -> list[str]:
    """The other candidates that the fresh seeds do not tell from the winner."""
    best, *others = ranking
    return [f"trial {each.trial} ({_mean(each)})" for each in others if best.ties_with(each)]


def _distances(tuner: Tuner, candidate: Candidate) -> dict[str, str]:
    return {key: distance(candidate.values[key], tuner.space[key]) for key in tuner.space}


def _mean(candidate: Candidate) -> str:
    return f"{candidate.mean:.4f} ± {candidate.standard_error:.4f}"


def _scores(candidate: Candidate) -> str:
    return ", ".join(
        f"{score:.4f} (seed {seed})"
        for seed, score in candidate.rescores.items()
        if score is not None
    )


def _commits(runs: Sequence[str]) -> str:
    """The commits that run folders were made at."""
    files = [Path(run) / "run.json" for run in runs]
    known = [json.loads(file.read_text()).get("commit") for file in files if file.is_file()]
    return ", ".join(sorted({str(commit) for commit in known})) or "unknown"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} → {"a": {"b": 1}}."""
    values: dict[str, Any] = {}
    for key, value in dotted.items():
        group = values
        *parents, last = key.split(".")
        for parent in parents:
            group = group.setdefault(parent, {})
        group[last] = value
    return values
