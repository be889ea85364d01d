"""Write a study's page, in the form of a paper's experiments section, from the report's CSV files.

    python -m experiments.studies.write study=mini folder=outputs/study-mini \\
        out=docs/results/study-mini.md

A packed study (`python -m experiments.studies.pack`) in place of the folder gives the same page. So
does an unpacked archive: it has no report, so the command makes it first.
A figure of the same name, .svg, goes beside the page. Only the text between the two marks of PROSE
is written by hand; an existing file keeps it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.markdown import table
from analysis.runs import RunError, is_packed
from envs.command_line import parse_arguments, quiet_when_unread
from experiments.errors import UserError
from experiments.studies.area_section import area_section
from experiments.studies.cli import check_place
from experiments.studies.figures import forest, interval, save, signed
from experiments.studies.page_sections import (
    check_claims,
    cost_sections,
    fit_sections,
    temperature_sections,
    turn_sections,
)
from experiments.studies.results.packing import read_arms
from experiments.studies.results.results import LESS, Results
from experiments.studies.run import make_report
from experiments.studies.study import Claim, Study, read

PROSE = ("<!-- discussion -->", "<!-- end of discussion -->")


@dataclass
class Options:
    """The command line."""

    study: str = "mini"  # a file of conf/study/, or FILE.yaml
    # where `python -m experiments.studies.run` ran the study, or a packed study
    folder: str = "outputs/study-mini"
    out: str = "docs/results/study-mini.md"  # the page; its text between the marks stays


TAKEN = {
    "weights_of": "starting from the final weights of `{}`",
    "rollouts_of": "on the recorded batches of `{}`",
    "replay_of": "with the recorded responses of `{}`",
}


def page_at(out: Path, study: Study, results: Results) -> str:
    """The whole page at `out`, with the text between the marks of the existing file.

    Raises UserError if a claim or the order is on something that the results do not have.
    """
    check_claims(study, results)
    name, figure = study.name.removeprefix("study-"), out.with_suffix(".svg").name
    packed = out.with_suffix("")
    evidence = (
        f" They follow from the counts in [{packed.name}/]({packed.name}/), as "
        f"`make check-results` shows. `make report RUNS=docs/results/{packed.name} OUT=FOLDER` "
        "writes that report from the counts, without programs."
        if is_packed(packed)
        else ""
    )
    return _page(study, results, name, figure, evidence, discussion_of(out)[0])


def _page(
    study: Study, results: Results, name: str, figure: str, evidence: str, discussion: str
) -> str:
    """`figure`: its picture's file name. `evidence`: where its numbers can be checked."""
    finished = [run for run in results.arms if run["status"] == "finished" and not run["trial"]]
    arms = in_order(study, results)
    parts = [
        f"# The study `{name}`",
        "Written by `python -m experiments.studies.write` from the report's CSV files. Curves, "
        f"problems and programs are in that report's `report.html`.{evidence}",
        f"## Question\n\n{study.question.strip()}",
        "## Setting\n\n" + "\n".join(_setting(study, results, finished)),
        *_chosen(study, results, arms),
        "## Result\n\nMeans over seeds, with 95 % intervals over seeds and problems. Two arms are "
        "separated, after Holm's correction for the number of comparisons, if and only if they "
        "share no letter. distinct_of_5 is a mean over the problems that the arm solves often "
        "enough, so over others for each arm; its differences are over the pair's common "
        "problems.\n\n"
        f"![{', '.join(results.metrics)} of each arm, with its interval]({figure})\n\n"
        + table(*_result_rows(arms, results, results.metrics)),
    ]
    if study.gains:
        pairs = sorted(study.gains, key=lambda gain: arms.index(gain[0]) if study.order_by else 0)
        rows = [[f"{a} − {b}", *_gaps(results, a, b)] for a, b in pairs]
        note = "\\* separated, after Holm's correction for the pairs named in the study's file.\n\n"
        if results.contrasts.empty:
            note = ""
        parts.append(f"### Side by side\n\n{note}" + table(["difference", *results.metrics], rows))
    parts += turn_sections(arms, study.gains, results)
    parts += area_section(results.source.run, results.arms, arms, study.seeds)
    parts += temperature_sections(
        study, results, results.metrics, lambda metrics: _result_rows(arms, results, metrics)
    )
    if study.claims:
        rows = list(_claim_rows(study.claims, results))
        parts.append(
            "## Claims\n\nA claim is held if the 95 % interval of the paired difference lies above "
            "the claim's bound, and not held if it lies below. Otherwise it is not decided. Held "
            "after correction: also by Holm's test of the pairs named in the study's file.\n\n"
            + table(["claim", "difference", ""], rows)
        )
    parts += cost_sections(
        {arm: results.label.get(arm) for arm in arms},
        results.costs,
        results.equal_budget,
        results.metrics[:-1],
        evaluated_between="eval.every=0" not in study.overrides,
    )
    parts += fit_sections(arms, results, results.metrics[:-1])
    parts += [f"{PROSE[0]}\n{discussion.strip()}\n{PROSE[1]}"]
    parts += ["## Threats to validity\n\n" + "\n".join(f"- {threat}" for threat in study.threats)]
    if study.left_out:
        left_out = [f"- {what}: {why}" for what, why in study.left_out.items()]
        parts += ["## Left out\n\n" + "\n".join(left_out)]
    return "\n\n".join(parts) + "\n"


def in_order(study: Study, results: Results) -> list[str]:
    """The arms in the study's order, or by its `order_by`, descending."""
    if not study.order_by:
        return list(study.arms)
    if study.order_by not in results.table:
        raise UserError(f"order_by={study.order_by}: not a column of the report's table.csv")

    def score(arm: str) -> float:
        value = (results.row(results.label.get(arm)) or {}).get(study.order_by, math.nan)
        return -math.inf if math.isnan(value) else value

    return sorted(study.arms, key=score, reverse=True)


def _setting(study: Study, results: Results, finished: list[dict]) -> Iterator[str]:
    yield f"All runs: `{' '.join(study.overrides)}`, seeds {', '.join(map(str, study.seeds))}.\n"
    planned = len(study.arms) * len(study.seeds)
    share = "" if len(finished) == planned else f" of the {planned}"
    commits = _commits(results)
    noun = "commit" if len(commits) == 1 else "commits"
    yield f"{len(finished)}{share} runs finished, at {noun} {', '.join(commits)}.\n"
    for name, arm in study.arms.items():
        taken = "".join(f", {TAKEN[key].format(parent)}" for key, parent in arm.parents.items())
        yield f"- `{name}`: `{' '.join(arm.overrides)}`{taken}"


def _commits(results: Results) -> list[str]:
    return sorted(results.runs["commit"].dropna().astype(str).unique())


def _chosen(study: Study, results: Results, arms: Sequence[str]) -> list[str]:
    """The value chosen for each arm, and the scores of its short runs; [] without a `choice`."""
    choice = study.choice
    if not choice:
        return []
    taken = {run["arm"]: _value(run, choice.key) for run in results.arms if not run["trial"]}
    scores = {
        (run["arm"], _value(run, choice.key)): run["score"]
        for run in results.arms
        if run["trial"] and run["score"] is not None
    }
    values = [f"{value:g}" for value in choice.values]
    rows = []
    for arm in arms:
        reached = (scores.get((arm, value)) for value in values)
        cells = ("–" if each is None else f"{each:.3f}" for each in reached)
        rows.append([arm, taken.get(arm, "–"), *cells])
    text = (
        f"`{choice.key}` is the best of {len(values)} by pass@1 at the end of short runs "
        f"(`{' '.join(choice.overrides)}`, seed {choice.seed}). Columns: pass@1 at each value."
    )
    return [f"### Chosen\n\n{text}\n\n" + table(["arm", "chosen", *values], rows)]


def _value(run: dict[str, Any], key: str) -> str:
    """The last value of a key in a run's overrides, or –."""
    values = [each.partition("=")[2] for each in run["overrides"] if each.startswith(f"{key}=")]
    return values[-1] if values else "–"


def _result_rows(
    arms: Sequence[str], results: Results, metrics: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    head = ["arm", "seeds"]
    for metric in metrics:
        head += [metric, "letters"]
    rows = []
    for name, label in _named(arms, results):
        row = results.row(label)
        if row is None:
            rows.append([name, "0", *["–"] * (2 * len(metrics))])
            continue
        cells = [name, f"{int(row['seeds'])}"]
        for metric in metrics:
            cells += [
                interval(row, metric, f"{metric}_low", f"{metric}_high"),
                results.letters(name, metric),
            ]
        rows.append(cells)
    return head, rows


def _named(arms: Sequence[str], results: Results) -> list[tuple[str, str | None]]:
    """(name, label in the report) of each row of the results: base models, then arms."""
    return [*results.bases.items(), *((arm, results.label.get(arm)) for arm in arms)]


def _gaps(results: Results, a: str, b: str) -> list[str]:
    metrics = results.metrics
    separated = {metric: results.corrected(a, b, metric) != "not decided" for metric in metrics}
    return [
        signed(results.difference(a, b, metric)) + r" \*" * separated[metric] for metric in metrics
    ]


def _claim_rows(claims: Sequence[Claim], results: Results) -> Iterator[list[str]]:
    for claim in claims:
        difference = results.difference(claim.a, claim.b, claim.metric)
        if difference is None or math.isnan(difference[1]):
            yield [claim.says, f"{claim.metric}: {signed(difference)}", "not decided"]
            continue
        low, high = difference[1:]
        if claim.metric in LESS:
            low, high = -high, -low
        unit = f" {LESS[claim.metric]}" if claim.metric in LESS else ""
        digits = 0 if claim.metric in LESS else 3
        verdict = claim.verdict(low, high)
        corrected = results.corrected(claim.a, claim.b, claim.metric, claim.margin or 0.0)
        if (verdict, corrected) == ("held", "above"):
            verdict = "held after correction"
        text = f"{claim.metric}: {signed(difference, digits)}{unit}"
        yield [claim.says, text, f"**{verdict}**"]


def discussion_of(out: Path) -> tuple[str, int]:
    """The text between the marks of the existing file, and its offset there."""
    if not out.is_file():
        return "", 0
    before, mark, after = out.read_text().partition(PROSE[0])
    return after.partition(PROSE[1])[0], len(before + mark)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    try:
        options = parse_arguments(Options, arguments)
        study, out = read(options.study), Path(options.out)
        folder = Path(options.folder)
        check_place("out", out.parent)
        _make_missing_report(study, folder)
        results = Results(folder)
        text = page_at(out, study, results)
    except (UserError, RunError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    rows = [
        (called, row)
        for called, label in _named(in_order(study, results), results)
        if (row := results.row(label)) is not None
    ]
    save(forest(rows, results.metrics), figure := out.with_suffix(".svg"))
    print(out, figure, sep="\n")
    return 0


def _make_missing_report(study: Study, folder: Path) -> None:
    """Make the report of run folders without one, as of an archive.

    Raises UserError if the report fails, or without the runs of a study.
    """
    if is_packed(folder) or (folder / "report" / "table.csv").is_file():
        return
    _, finished = read_arms(folder)
    if not make_report(study, folder, {run.entry["arm"] for run in finished}):
        raise UserError(f"folder={folder}: the report, which the page is written from, failed")


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
