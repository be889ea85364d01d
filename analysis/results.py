"""Results in the repository: counts of studies, the tables of their pages, and quoted numbers.

    python -m analysis.results                     check all pages and quotes (`make check-results`)
    python -m analysis.results write=true          write the tables and figures of pages again
    python -m analysis.results pack=outputs/study-front study=conf/study/front.yaml

A packed study, docs/results/study-NAME/ (analysis/runs.py), has counts from which everything on
its page follows. A table of a page, and a number in any sentence, is named in a comment that
readers do not see:

    <!-- table: pass@1; pass@10 -->  rows: base models and arms; up to <!-- end -->
    <!-- differences: pass@1 -->     rows: the pairs in `gains` of the study's file
    <!-- claims -->                  what became of each claim
    <!-- ranks -->                   rank correlation between sizes, and the pairs that invert
    <!-- values: 100; base; auc: logp -->  of values.csv, step and writer first; rows: arms
    <!-- front: raft; spo -->        writes the page's figure, pass@k over pass@1 along training
    <!-- answer -->                  SPO's differences in all studies; writes the page's figure
    <!-- leaderboard -->             arms of all studies that were evaluated on test problems
    ends at .473<!--= sft; pass@1 -->, .108 [.056, .159]<!--= spo - sft; pass@10; unsigned --> above

On another page than the study's own, a name begins with the study: <!--= front; sft; pass@1 -->.
A difference of two differences is <!--= (a_old - a) - (b_old - b); pass@1 -->, a rank correlation
between two sizes <!--= 1m - 5m; tau of pass@1 -->.
Columns: those of table.csv, costs.csv and crossing.csv; metrics of turns.csv; `area`; `METRIC at
AXIS` (equal budget); `COLUMN in second half` (of the steps, of metrics.parquet); `spread of
pass@K` over seeds; `steps to .95 of pass@1`, the mean over seeds of the first evaluation with so
much, none where a seed has no such evaluation; of differences also `time` and `memory`. Of
values.csv (analysis/values.py), in the row `spo 100 base`: `auc: log_ratio`, `slope of soft: Q`.
Forms: `interval` and `letters` of an arm, `range` over seeds of a second half, `mean`, `unsigned`
and `verdict` of a difference (is it above 0?).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import jinja2
import numpy as np
import pandas as pd
import yaml

from analysis import comparisons, runs
from analysis.budgets import TRAINING_METRICS, curve_score
from analysis.experiment import read_experiment
from analysis.figures import COLOURS, Panel, Size
from analysis.intervals import smallest_difference
from analysis.metrics import AT_EQUAL, is_counted, scores_by_step
from analysis.rendering import markdown_table
from analysis.runs import Contrast, Run, RunError
from analysis.study_frames import along_training
from analysis.tables import experiment_tables
from analysis.turns import counts_at, has_conversations
from envs.command_line import parse_arguments, quiet_when_unread

PAGES = Path("docs/results")
TEMPLATE = Path(__file__).parent / "web" / "study.md.j2"  # of a new study's page
FOREST = TEMPLATE.with_name("forest.svg.j2")
LESS = {"time": "s", "memory": "MB"}  # metrics where less is better → unit
SHARES = ("pass@", "distinct", "area")  # columns that are written as .473; others as 1,234
QUOTE = re.compile(r"<!--= ?(.*?) ?-->")
KINDS_OF_BLOCK = "table|differences|claims|ranks|values|answer|leaderboard"
BLOCK = re.compile(rf"(<!-- ({KINDS_OF_BLOCK})(?:: (.*?))? -->\n\n).*?<!-- end -->", re.S)
NOT_PROSE = re.compile(  # code, headings, tables, list numbers, links' targets, quotes, comments
    r"```.*?```|`[^`]*`|^(?:#|\|).*?$|^\d+\.(?= )|\]\([^)]*\)"
    r"|[+−]?[\d.,]+(?: \[[^\]]*\]| to [−.\d]+)?<!--=.*?-->|<!--.*?-->",
    re.S | re.M,
)
NUMBER = re.compile(  # but a name's, a year, a version, a paper's, a model's size
    r"(?<![\w.@-])(?!20\d\d\b|\d+\.\d+\.\d|\d{4}\.\d{5}|[\d.]+ ?[BM]\b)\.?\d[\d,.]*(?:e[+-]?\d+)?\b"
)
SIDES = re.compile(r"(\(.+\)|[^(]+?) - (\(.+\)|[^(]+)")  # of a difference, or of two differences
FRONT = re.compile(r"<!-- front: (.*?) -->")
REACHED = re.compile(r"steps to ([\d.]+) of (pass@(\d+))")
SPENT = ("budget/", "time/", "memory/", "eval/")  # beginnings of packed columns
FORMS = {"monte_carlo": "paper's", "group_soft": "soft", "group": "earlier"}  # of SPO, by algo.q0
RIVALS = ("PPO", "GRPO", "RAFT")
KINDS = ("pass@1", "pass@k", f"pass@k{AT_EQUAL}")  # what the arms of all studies are compared in


@dataclass
class Options:
    """The command line."""

    root: Path = Path(".")  # the repository
    write: bool = False  # write the tables and figures of pages in place of checking them
    pack: Path | None = None  # a study's output folder, whose counts go into docs/results
    study: Path | None = None  # with pack: the study's file


class Cell(NamedTuple):
    """A number with its interval, NaN without one."""

    mean: float
    low: float = nan
    high: float = nan
    digits: int = 3

    def text(self, interval: bool = True, sign: str = "") -> str:
        """.473 [.445, .501]; – for NaN; `sign` before a mean above 0."""
        if isnan(self.mean):
            return "–"
        mean, low, high = (_number(value, self.digits) for value in self[:3])
        mean = f"{sign if round(self.mean, self.digits) > 0 else ''}{mean}"
        return f"{mean} [{low}, {high}]" if interval and not isnan(self.low) else mean


def _number(value: float, digits: int) -> str:
    """.473 for 0.473, −.010 for −0.01, 1,234 without digits."""
    if isnan(value):
        return "–"
    text = f"{round(value, digits) + 0.0:,.{digits}f}"  # no sign on a zero
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


class Results:
    """The numbers of a packed study, by arm and column. Raises RunError if it is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.packed = folder, runs.PackedStudy(folder)
        self.study = self.packed.study
        self.finished = [
            run for run in self.packed.arms if run["status"] == "finished" and not run["trial"]
        ]
        experiment, _ = read_experiment(folder.name, [folder])
        assert experiment is not None, "a damaged run is an error"
        tables = {n.removesuffix(".csv"): t for n, t in experiment_tables(experiment).items()}
        paths, groups_of = tables["runs"]["path"], tables["runs"]["group"]
        groups = {Path(p).name: group for p, group in zip(paths, groups_of, strict=True)}
        labels = {groups[Path(run["run"]).name]: run["arm"] for run in self.finished}
        self.arms = [arm for arm in self.study["arms"] if arm in labels.values()]
        for label in map(str, tables["table"]["label"]):
            if label.startswith("base"):
                short = re.sub(r" path=\S+", "", label).replace(" name=", " ")
                labels[label] = short
        self.bases = [name for name in labels.values() if name not in self.arms]
        self.cells, self.ranks = dict(_cells(tables, labels)), tables["ranks"]
        if (values := folder / "values.csv").is_file():
            self.cells.update(_value_cells(pd.read_csv(values)))
        self.letters = {
            (labels[row["label"]], row["metric"]): str(row["letters"])
            for row in tables["letters"].to_dict("records")
        }
        self.tests = {  # the difference that most such studies see; p by Holm's correction over
            (frozenset(labels.get(name, name) for name in (pair.a, pair.b)), pair.metric): (
                float(smallest_difference(pair.estimate)),  # the pairs named ahead, else all
                pair.corrected_p,
            )
            for pair in [*experiment.pairs, *experiment.interactions]
        }
        self.trained, self.k = experiment.trained, experiment.ks[-1]
        self.curve = tables["curve"].replace({"label": labels})
        self.answers = {  # of the named pairs, corrected: above, below, not decided, …
            (one.pair.a, one.pair.b, one.pair.metric, one.margin): one.answer
            for one in experiment.contrasts
        }

    def cell(self, row: str, column: str) -> Cell | None:
        """A number of an arm, or of a difference `A - B`; None if there is none."""
        if row.startswith("("):
            a, b = re.findall(r"\(.+?\)", row)
            found = comparisons.interactions(self.trained, [Contrast(a, b, column)])
            return Cell(*found[0].difference) if found else None
        a, minus, b = row.partition(" - ")
        if minus and column in LESS:
            return self._cost_difference(a, b, column)
        if column == "area":
            scores = [curve_score(run) for run in self.runs(row)]
            return Cell(fmean(scores)) if scores and not any(map(isnan, scores)) else None
        if column.startswith("spread of "):
            name, ks = column.removeprefix("spread of "), (1, int(column.rpartition("@")[2]))
            ends = [scores_by_step(run, ks)[name].measured()[-1] for run in self.runs(row)]
            return Cell(stdev(map(float, map(np.nanmean, ends)))) if len(ends) > 1 else None
        if reached := REACHED.fullmatch(column):
            steps = [_first_step(run, reached[2], float(reached[1])) for run in self.runs(row)]
            return Cell(fmean(steps), digits=0) if steps else None
        if column.endswith(" in second half"):
            means = self._second_halves(row, column.removesuffix(" in second half"))
            return Cell(fmean(means)) if means else None
        return self.cells.get((row, column))

    def quote(self, row: str, column: str, form: str = "") -> str:
        """The text of a number. Raises ValueError if there is none."""
        if form == "range" and (means := self._second_halves(row, column.partition(" in ")[0])):
            return f"{_number(min(means), 3)} to {_number(max(means), 3)}"
        if form == "letters" and (letters := self.letters.get((row, column))):
            return letters
        cell = self.cell(row, column)
        if form == "verdict" and (sides := SIDES.fullmatch(row)):
            return self._verdict(sides[1], sides[2], column)
        if cell is None or isnan(cell.mean) or form in ("range", "letters", "verdict"):
            raise ValueError(f"{row} has no {column} {form}".strip())
        if " - " in row:
            return cell.text(form != "mean", "" if form == "unsigned" else "+")
        return cell.text(form == "interval")

    def runs(self, arm: str) -> list[Run]:
        """The finished runs of an arm."""
        names = (Path(run["run"]).name for run in self.finished if run["arm"] == arm)
        return [self.packed.runs[name] for name in names]

    def config(self, arm: str) -> dict[str, Any]:
        """The configuration of an arm's first run. Raises ValueError for an arm without one."""
        if not (found := self.runs(arm)):
            raise ValueError(f"{self.folder.name} has no finished run of {arm}")
        return found[0].config

    def _second_halves(self, arm: str, column: str) -> list[float]:
        """The mean of a column over the second half of each seed's steps, where it has values."""
        steps = (run.metrics for run in self.runs(arm))
        late = [each[each["step"] * 2 > each["step"].max()] for each in steps]
        return [float(s[column].mean()) for s in late if column in s and s[column].notna().any()]

    def _cost_difference(self, a: str, b: str, metric: str) -> Cell | None:
        """Student's interval of the paired differences over seeds."""
        from scipy import stats

        def costs(arm: str) -> dict[int, float]:
            last = {int(run.info["seed"]): run.metrics.iloc[-1] for run in self.runs(arm)}
            if metric == "memory":
                return {seed: row["memory/peak_mb"] for seed, row in last.items()}
            return {s: row["time/total_s"] - row["time/evaluate_s"] for s, row in last.items()}

        of_a, of_b = costs(a), costs(b)
        gaps = np.array([of_a[seed] - of_b[seed] for seed in sorted(of_a.keys() & of_b.keys())])
        if len(gaps) < 2:
            return None
        half = stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5
        return Cell(float(gaps.mean()), float(gaps.mean() - half), float(gaps.mean() + half), 0)

    # Tables of a page.

    def block(self, kind: str, columns: Sequence[str]) -> str:
        """The table of a block."""
        if kind == "claims":
            return markdown_table(
                ["claim", "difference", "would have been seen", ""],
                [self._claim(c) for c in self.study["claims"]],
            )
        if kind == "ranks":
            head = ["sizes", "metric", "Kendall's tau", "order", "next order", "inverted"]
            rows = []
            for row in self.ranks.to_dict("records"):
                tau = self.cells[f"{row['from']} - {row['to']}", f"tau of {row['metric']}"]
                cells = [f"{row['from']}, {row['to']}", row["metric"], tau.text(sign="+")]
                inverted = str(row["inverted"]).replace("*", r" \*") or "none"
                rows.append([*cells, row["smaller"], row["larger"], inverted])
            return markdown_table(head, rows)
        if kind == "values":
            step, writer, *columns = columns
            cells = [[self.cell(f"{a} {step} {writer}", c) for c in columns] for a in self.arms]
            shown = [[cell.text() if cell else "–" for cell in row] for row in cells]
            rows = [[a, *row] for a, row in zip(self.arms, shown, strict=True) if set(row) != {"–"}]
            return markdown_table(["arm", *columns], rows)
        if kind == "differences":
            pairs = self.study.get("gains", [])
            rows = [[f"{a} − {b}", *(self.gap(a, b, c) for c in columns)] for a, b in pairs]
            return markdown_table(["difference", *columns], rows)
        rows = []
        for arm in [*self.bases, *self.arms]:
            texts = self.row(arm, columns)
            if set(texts) != {"–"}:
                rows.append([arm, *texts])
        return markdown_table(["arm", *columns], rows)

    def row(self, arm: str, columns: Sequence[str]) -> list[str]:
        """An arm's numbers with their intervals and letters; – for one that is not there."""
        cells = [
            (self.cell(arm, column), self.letters.get((arm, column), "")) for column in columns
        ]
        return [f"{cell.text()} {letters}".strip() if cell else "–" for cell, letters in cells]

    def front(self, arms: Sequence[str]) -> str:
        """An SVG of these arms' pass@k over pass@1 along training, after the base."""
        return along_training(self.curve, f"pass@{self.k}", "pass@1", arms).file()

    def gap(self, a: str, b: str, metric: str) -> str:
        """The difference a - b, marked if it is separated after correction; – for none."""
        cell = self.cell(f"{a} - {b}", metric)
        _, p = self.tests.get((frozenset((a, b)), metric), (nan, nan))
        return cell.text(sign="+") + r" \*" * (p < comparisons.SIGNIFICANCE) if cell else "–"

    def _claim(self, claim: dict[str, Any]) -> list[str]:
        """A claim, the difference, and by its interval: held, not held or not decided."""
        a, b, margin = claim["a"], claim["b"], claim.get("margin") or 0.0
        if over := claim.get("over"):
            a, b = f"({a} - {b})", f"({over[0]} - {over[1]})"
        metric = claim["metric"] + (AT_EQUAL if claim.get("at_equal") else "")
        cell = self.cell(f"{a} - {b}", metric)
        seen, _ = self.tests.get((frozenset((a, b)), metric), (nan, nan))
        text = f"{metric}: {cell.text(sign='+')}" if cell else metric
        unit = f" {LESS[metric]}" if metric in LESS else ""
        verdict = self._verdict(a, b, metric, margin)
        return [claim["says"], f"{text}{unit}", _number(seen, 3), f"**{verdict}**"]

    def _verdict(self, a: str, b: str, metric: str, margin: float = 0.0) -> str:
        """Is a - b above -margin? By the interval: held, not held or not decided."""
        cell = self.cell(f"{a} - {b}", metric)
        if cell is None or isnan(cell.low):
            return "not decided"
        low, high = (-cell.high, -cell.low) if metric in LESS else (cell.low, cell.high)
        verdict = "not held" if high < -margin else "not decided"
        if low > -margin or (margin and low == -margin):
            verdict = "held"
            if self.answers.get((a, b, metric, margin)) == "above":
                verdict = "held after correction"
        return verdict


def _first_step(run: Run, name: str, score: float) -> float:
    """The step of a run's first evaluation with this score; NaN if there is none."""
    grid = scores_by_step(run, (int(name.removeprefix("pass@")),))[name]
    means = np.nanmean(grid.measured(), axis=1)
    return next(
        (s for s, mean in zip(run.evaluated_steps, means, strict=True) if mean > score - 1e-9), nan
    )


def _cells(
    tables: dict[str, pd.DataFrame], labels: dict[str, str]
) -> Iterator[tuple[tuple[str, str], Cell]]:
    """Yield (arm or `A - B`, column) → number, of all tables of a report."""

    def cell(row: dict[Any, Any], column: str, digits: int = 3) -> Cell:
        mean, low, high = (float(row.get(f"{column}{end}", nan)) for end in ("", "_low", "_high"))
        return Cell(mean, low, high, digits)

    for name in ("crossing", "costs", "table"):
        for row in tables[name].to_dict("records"):
            for column, value in row.items():
                if isinstance(value, int | float) and row["label"] in labels:
                    digits = 3 if str(column).startswith(SHARES) else 0
                    yield (labels[row["label"]], str(column)), cell(row, str(column), digits)
    for row in tables["ranks"].to_dict("records"):
        yield (f"{row['from']} - {row['to']}", f"tau of {row['metric']}"), cell(row, "tau")
    for name in ("turns", "equal_budget"):
        for row in tables.get(name, pd.DataFrame()).to_dict("records"):
            if row["label"] in labels:
                key = f"{row['metric']} at {row['axis']}" if "axis" in row else row["metric"]
                yield (labels[row["label"]], key), Cell(row["mean"], row["low"], row["high"])
    for name in ("differences", "turn_differences"):
        for row in tables.get(name, pd.DataFrame()).to_dict("records"):
            if row["a"] in labels and row["b"] in labels:
                pair = f"{labels[row['a']]} - {labels[row['b']]}"
                yield (pair, row["metric"]), Cell(row["difference"], row["low"], row["high"])


def _value_cells(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str], Cell]]:
    """Yield (arm, step and writer; statistic and predictor) → number, of values.csv."""
    for row in table.to_dict("records"):
        of = "" if row["target"] == "accepted" else f" of {row['target']}"
        column = f"{row['statistic']}{of}: {row['predictor']}"
        arm = f"{row['arm']} {row['step']} {row['writer']}"
        yield (arm, column), Cell(row["mean"], row["low"], row["high"])


# Pages.


def checked(page: Path, root: Path, write: bool = False) -> tuple[str, list[str], int]:
    """Return a page with its tables written again, what is wrong in it, and its quotes' number.

    `write`: writes its figure too.
    """
    text, faults, quotes = page.read_text(), list[str](), 0
    own = page.with_suffix("")

    def fault(at: int, says: str) -> None:
        faults.append(f"{page.relative_to(root)}:{text.count(chr(10), 0, at) + 1}: {says}")

    def written(match: re.Match[str]) -> str:
        columns = [name.strip() for name in (match[3] or "").split(";")]
        if match[2] == "answer":
            table, _ = answer(page)
        elif match[2] == "leaderboard":
            table = leaderboard(page.parent)
        else:
            table = results_of(own).block(match[2], columns)
        return f"{match[1]}{table}\n\n<!-- end -->"

    right = BLOCK.sub(written, text)
    if right != text:
        places = zip(text.splitlines(), right.splitlines(), strict=False)
        line = next((i for i, (a, b) in enumerate(places, 1) if a != b), 1)
        faults.append(
            f"{page.relative_to(root)}:{line}: the counts give {right.splitlines()[line - 1]}"
        )
    drawn, file = "", page.with_suffix(".svg")
    if front := FRONT.search(text):
        drawn = results_of(own).front(re.split(r"; *", front[1]))
    elif "<!-- answer -->" in text:
        drawn = answer(page)[1]
    if drawn and write:
        file.write_text(drawn)
    elif drawn and (not file.exists() or file.read_text() != drawn):
        fault(0, f"{file.name} is not what the counts give")
    for match in QUOTE.finditer(text):
        quotes += 1
        names = [name.strip() for name in match[1].split(";")]
        folder = root / PAGES / f"study-{names[0]}"
        names = names[1:] if folder.is_dir() else names
        try:
            value = results_of(folder if folder.is_dir() else own).quote(*names)
        except (ValueError, TypeError) as error:
            fault(match.start(), f"{match[0]}: {error}")
            continue
        before = text[: match.start()]
        if not before.endswith(value) or re.search(r"[\d.,+−]$", before.removesuffix(value)):
            fault(match.start(), f"…{before[-24:]} stands there; {match[0]} is {value}")
    return right, faults, quotes


@cache
def results_of(folder: Path) -> Results:
    """The numbers of a packed study, read once."""
    return Results(folder)


def studies(folder: Path) -> list[Results]:
    """The packed studies in a folder."""
    return [results_of(file.parent) for file in sorted(folder.glob("*/arms.json"))]


def answer(page: Path) -> tuple[str, str]:
    """Return a table and an SVG of SPO's differences in every study beside a page.

    The page's YAML has the pairs of each study; how they were run is read from their runs. Raises
    ValueError for a study without an entry.
    """
    compared = yaml.safe_load(page.with_suffix(".yaml").read_text())
    packed = {one.folder.name.removeprefix("study-"): one for one in studies(page.parent)}
    if lost := packed.keys() - compared.keys():
        raise ValueError(f"{page.stem}.yaml has no entry {', '.join(sorted(lost))}")
    head, labels, marks = list[str](), list[tuple[str, str]](), list[tuple[Any, ...]]()
    rows: dict[str, list[list[str]]] = {kind: [] for kind in KINDS}
    for study, arm in ((s, arm) for s, arms in compared.items() if s in packed for arm in arms):
        results, others = packed[study], compared[study][arm]
        config, before = results.config(arm), results.study["arms"][arm].get("weights_of")
        train, moves = config["train"], config["train"]["reference_every"]
        age = train["lag"] + train["sync_every"] - 1
        settings = {
            "study and arm": f"[{study}](study-{study}.md) `{arm}`",
            "form": FORMS[config["algo"]["q0"]] + ", moving" * bool(moves),
            "model": results.config(before or arm)["model"]["name"],
            "start": f"after {before}" if before else "base",
            "age": "all" if train["sync_every"] >= config["steps"] else f"{age}",
            "steps": f"{config['steps']}",
            "seeds": f"{min(len(results.runs(one)) for one in (arm, *others))}",
            "T": _number(config["eval"]["temperature"], 1),
        }
        for column, kind in enumerate(KINDS):
            metric, texts = kind.replace("@k", f"@{results.k}"), dict.fromkeys(RIVALS, "–")
            for other in others:
                rival = results.config(other)["algo"]["name"].upper()
                if cell := results.cell(f"{arm} - {other}", metric):
                    seen, _ = results.tests[frozenset((arm, other)), metric]
                    texts[rival] = f"{results.gap(arm, other, metric)} ({_number(seen, 3)})"
                    marks.append((column, len(labels), RIVALS.index(rival), cell, texts[rival]))
            if set(texts.values()) != {"–"}:
                rows[kind].append([metric, *settings.values(), *texts.values()])
        head = ["metric", *settings, *(f"SPO − {name}" for name in RIVALS)]
        labels.append(
            (f"{study}: {arm}", f"{settings['form']}; {settings['start']}; age {settings['age']}")
        )
    drawing = jinja2.Template(FOREST.read_text(), trim_blocks=True, lstrip_blocks=True)
    reach = max(abs(end) for mark in marks for end in mark[3][1:3])
    names = {"kinds": KINDS, "rivals": RIVALS, "labels": labels, "marks": marks, "ink": COLOURS}
    size = Size(270 + 200 * len(KINDS), 50 + 36 * len(labels), 0, "")
    drawn = Panel(set(), "", drawing.render(names, scale=90 / reach), size).file()
    return markdown_table(head, [row for of_kind in rows.values() for row in of_kind]), drawn


def leaderboard(folder: Path) -> str:
    """A table for each task, model and budget: arms evaluated on test problems, the best first."""
    tracks: dict[str, list[tuple[float, list[str]]]] = {}
    for results in studies(folder):
        study, scores = results.folder.name, ("pass@1", f"pass@{results.k}")
        for arm in results.arms:
            runs, config = results.runs(arm), results.config(arm)
            if config["eval"]["split"] != "test":
                continue
            budget = f"{config['model']['name']}, {config['steps']} steps"
            drawn = f"T {_number(config['eval']['temperature'], 1)}, k {results.k}"
            problems = f"problems {runs[0].info['data_hash']}"
            track = f"### {config['task']['name']}, {budget}, {drawn}, {problems}"
            tokens = (
                results.cell(arm, f"{who}_tokens") for who in ("generated", "prefix", "reference")
            )
            row = [
                f"`{arm}`",
                f"[{study.removeprefix('study-')}]({study}.md)",
                *results.row(arm, scores),
                _number(sum(cell.mean for cell in tokens if cell), 0),
                f"{len(runs)}/{len(results.study['seeds'])}",
                max(str(run.info["started"]) for run in runs)[:10],
            ]
            tracks.setdefault(track, []).append((results.cells[arm, "pass@1"].mean, row))
    head = ["arm", "study", "pass@1", "pass@k", "tokens", "seeds", "date"]
    parts = []
    for track in sorted(tracks):
        rows = sorted(tracks[track], key=lambda each: -each[0])
        parts += [track, markdown_table(head, [row for _, row in rows])]
    return "\n\n".join(parts)


def loose_numbers(text: str) -> list[str]:
    """The numbers in a page's sentences that no comment holds to their counts."""
    return NUMBER.findall(NOT_PROSE.sub(" ", text))


def check(root: Path, write: bool) -> list[str]:
    """Check, or write, all pages below docs and the README; return the faults."""
    faults, quotes, loose = list[str](), 0, dict[str, int]()
    for page in sorted([root / "README.md", *(root / "docs").rglob("*.md")]):
        right, wrong, number = checked(page, root, write)
        if write:
            page.write_text(right)
            wrong = checked(page, root)[1]
        faults, quotes = faults + wrong, quotes + number
        if page.parent == root / PAGES and (found := loose_numbers(right)):
            loose[page.stem] = len(found)
    print(f"{quotes} quoted numbers, {len(studies(root / PAGES))} studies")
    by_page = ", ".join(f"{name} {number}" for name, number in loose.items())
    print(f"{sum(loose.values())} numbers outside quotes, tables, code and headings: {by_page}")
    return faults


# Packing.


def pack(folder: Path, study: Path, out: Path) -> None:
    """Write a study's counts into `out`. Of absolute paths of data the name alone is kept.

    Raises RunError for a damaged run, or a claim on a metric that counts do not give.
    """
    claims = yaml.safe_load(study.read_text()).get("claims", [])
    for metric in (claim["metric"] for claim in claims):
        if metric not in LESS and not is_counted(metric):
            raise RunError(f"study={study}: {metric} of a claim depends on the programs' texts")
    try:
        arms = json.loads((folder / runs.ARMS).read_text())
    except (OSError, ValueError) as error:
        raise RunError(
            f"pack={folder}: {runs.ARMS}: {error}; a study writes it at its end"
        ) from error
    tables: dict[str, list[pd.DataFrame]] = {}
    local = set[str]()
    for entry in arms:
        entry["run"] = Path(entry["run"]).name if entry["run"] else None
    for entry in sorted(arms, key=lambda entry: str(entry["run"])):
        if entry["status"] != "finished" or entry["trial"]:
            continue
        run, name = runs.load_run(folder / entry["run"]), entry["run"]
        places = (run.config["task"].get("path"), run.config.get("output_dir"))
        local |= {path for path in map(str, places) if Path(path).is_absolute()}
        texts = {"config": "config.yaml", "info": "run.json"}
        texts = {key: (folder / name / file).read_text() for key, file in texts.items()}
        head = {"run": name, "arm": entry["arm"], "seed": entry["seed"]}
        steps, whole = run.metrics["step"], (0, run.evaluated_steps[-1])
        columns = map(str, run.metrics)
        spent = [
            c for c in columns if c in ("step", "reward_mean", "kl_ref") or c.startswith(SPENT)
        ]
        drawn = [*(m.name for m in TRAINING_METRICS), "value/group_mean_explained"]
        drawn = [column for column in drawn if column in run.metrics]
        at = steps.isin(run.evaluated_steps) | (steps == steps.max())
        evaluations = {run.config["eval"]["temperature"]: run.evals, **run.further_evals}
        counts = [
            runs.count_samples(samples).assign(temperature=float(t), main=samples is run.evals)
            for t, samples in evaluations.items()
        ]
        parts = {
            runs.COUNTS: pd.concat(counts, ignore_index=True),
            runs.RUNS: pd.DataFrame([head | texts]),
            runs.METRICS: run.metrics.loc[at, spent],
            runs.TRAINING: run.metrics[["step", *drawn]].astype(dict.fromkeys(drawn, "float32")),
        }
        if has_conversations(run):
            each = [counts_at(run, step, step in whole) for step in run.evaluated_steps]
            parts[runs.TURNS] = pd.concat(each, ignore_index=True)
        for file, part in parts.items():
            rest = part.drop(columns="run", errors="ignore")
            rest.insert(0, "run", name)
            tables.setdefault(file, []).append(rest)
    out.mkdir(parents=True, exist_ok=True)
    for file, each in tables.items():
        whole_table = pd.concat(each, ignore_index=True)
        for column in ("config", "info") if file == runs.RUNS else ():
            whole_table[column] = [_shortened(text, local) for text in whole_table[column]]
        whole_table.to_parquet(out / file, index=False, compression="zstd", compression_level=19)
    (out / runs.ARMS).write_text(_shortened(json.dumps(arms, indent=1), local) + "\n")
    (out / runs.CONTRASTS).write_bytes((folder / runs.CONTRASTS).read_bytes())
    (out / study.name).write_bytes(study.read_bytes())
    files = [runs.ARMS, runs.CONTRASTS, *tables, study.name]
    for values in folder.glob("values/values.[cs]*"):  # the table and its figure
        (out / values.name).write_bytes(values.read_bytes())
        files.append(values.name)
    lines = [f"{digest}  {file}\n" for file, digest in runs.sums(out, files).items()]
    (out / runs.SUMS).write_text("".join(lines))


def _shortened(text: str, paths: set[str]) -> str:
    """Leave only the last part of these paths in a text."""
    for path in sorted(paths, key=len, reverse=True):  # one may begin another
        text = text.replace(path, Path(path).name)
    return text


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 1 for faults."""
    try:
        options = parse_arguments(Options, arguments, __doc__)
        if options.pack is not None:
            if options.study is None:
                raise ValueError("pack: give study=FILE.yaml too")
            out = options.root / PAGES / f"study-{options.study.stem}"
            pack(options.pack, options.study, out)
            page = out.with_suffix(".md")
            if not page.exists():
                values = yaml.safe_load(options.study.read_text())
                template = jinja2.Template(TEMPLATE.read_text(), keep_trailing_newline=True)
                page.write_text(
                    template.render(name=options.study.stem, question=values["question"])
                )
            print(f"{out}\n{page}: write=true fills its tables")
            return 0
        faults = check(options.root, options.write)
    except (RunError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(*faults, f"faults: {len(faults)}", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
