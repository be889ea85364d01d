"""Results in the repository: counts of studies, the tables of their pages, and quoted numbers.

    python -m analysis.results                     check all pages and quotes (`make check-results`)
    python -m analysis.results write=true          write tables of pages and the leaderboard again
    python -m analysis.results pack=outputs/study-front study=conf/study/front.yaml

A packed study, docs/results/study-NAME/ (analysis/runs.py), has counts from which everything on
its page follows. A table of a page, and a number in any sentence, is named in a comment that
readers do not see:

    <!-- table: pass@1; pass@10 -->  rows: base models and arms; up to <!-- end -->
    <!-- differences: pass@1 -->     rows: the pairs in `gains` of the study's file
    <!-- claims -->                  what became of each claim
    <!-- front: raft; spo -->        writes the page's figure, pass@k over pass@1 along training
    ends at .473<!--= sft; pass@1 -->, .108 [.056, .159]<!--= spo - sft; pass@10; unsigned --> above

On another page than the study's own, a name begins with the study: <!--= front; sft; pass@1 -->.
A difference of two differences is <!--= (a_old - a) - (b_old - b); pass@1 -->.
Columns: those of table.csv, costs.csv and crossing.csv; metrics of turns.csv; `area`; `METRIC at
AXIS` (equal budget); `A of METRIC over AXIS` (curve_fits.csv); `COLUMN in second half` (of the
steps, of metrics.parquet); `spread of pass@K` over seeds; of differences also `time` and `memory`.
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
LESS = {"time": "s", "memory": "MB"}  # metrics where less is better → unit
SHARES = ("pass@", "distinct", "area")  # columns that are written as .473; others as 1,234
QUOTE = re.compile(r"<!--= ?(.*?) ?-->")
BLOCK = re.compile(r"(<!-- (table|differences|claims)(?:: (.*?))? -->\n\n).*?<!-- end -->", re.S)
SIDES = re.compile(r"(\(.+\)|[^(]+?) - (\(.+\)|[^(]+)")  # of a difference, or of two differences
FRONT = re.compile(r"<!-- front: (.*?) -->")
SPENT = ("budget/", "time/", "memory/", "eval/")  # beginnings of packed columns
LEADERBOARD_METRICS = ("pass@1", "pass@10", "distinct_of_5")


@dataclass
class Options:
    """The command line."""

    root: Path = Path(".")  # the repository
    write: bool = False  # write the tables of pages and the leaderboard in place of checking them
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
        self.cells = dict(_cells(tables, labels))
        self.letters = {
            (labels[row["label"]], row["metric"]): str(row["letters"])
            for row in tables["letters"].to_dict("records")
        }
        self.detectable = {  # by most such studies
            (frozenset(labels.get(name, name) for name in (pair.a, pair.b)), pair.metric): float(
                smallest_difference(pair.estimate)
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
        if cell is None or form in ("range", "letters", "verdict"):
            raise ValueError(f"{row} has no {column} {form}".strip())
        if " - " in row:
            return cell.text(form != "mean", "" if form == "unsigned" else "+")
        return cell.text(form == "interval")

    def runs(self, arm: str) -> list[Run]:
        """The finished runs of an arm."""
        names = (Path(run["run"]).name for run in self.finished if run["arm"] == arm)
        return [self.packed.runs[name] for name in names]

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
        if kind == "differences":
            pairs = self.study.get("gains", [])
            rows = [[f"{a} − {b}", *(self._gap(a, b, c) for c in columns)] for a, b in pairs]
            return markdown_table(["difference", *columns], rows)
        rows = []
        for arm in [*self.bases, *self.arms]:
            cells = [self.cell(arm, column) for column in columns]
            texts = [cell.text() if cell else "–" for cell in cells]
            marks = [self.letters.get((arm, column), "") for column in columns]
            if set(texts) != {"–"}:
                rows.append([arm, *(f"{t} {m}".strip() for t, m in zip(texts, marks, strict=True))])
        return markdown_table(["arm", *columns], rows)

    def front(self, arms: Sequence[str]) -> str:
        """An SVG of these arms' pass@k over pass@1 along training, after the base."""
        return along_training(self.curve, f"pass@{self.k}", "pass@1", arms).file()

    def _gap(self, a: str, b: str, metric: str) -> str:
        cell = self.cell(f"{a} - {b}", metric)
        separated = self.answers.get((a, b, metric, 0.0)) in ("above", "below")
        return cell.text(sign="+") + r" \*" * separated if cell else "–"

    def _claim(self, claim: dict[str, Any]) -> list[str]:
        """A claim, the difference, and by its interval: held, not held or not decided."""
        a, b, margin = claim["a"], claim["b"], claim.get("margin") or 0.0
        if over := claim.get("over"):
            a, b = f"({a} - {b})", f"({over[0]} - {over[1]})"
        metric = claim["metric"] + (AT_EQUAL if claim.get("at_equal") else "")
        cell, seen = (
            self.cell(f"{a} - {b}", metric),
            self.detectable.get((frozenset((a, b)), metric), nan),
        )
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
    for row in tables["curve_fits"].to_dict("records"):
        for column in map(str, row.keys() - {"label", "metric", "axis"}):
            if f"{column}_low" in row or column.startswith("second_half"):
                key = f"{column} of {row['metric']} over {row['axis']}"
                yield (labels[row["label"]], key), cell(row, column)
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
        return f"{match[1]}{results_of(own).block(match[2], columns)}\n\n<!-- end -->"

    right = BLOCK.sub(written, text)
    if right != text:
        places = zip(text.splitlines(), right.splitlines(), strict=False)
        line = next((i for i, (a, b) in enumerate(places, 1) if a != b), 1)
        faults.append(
            f"{page.relative_to(root)}:{line}: the counts give {right.splitlines()[line - 1]}"
        )
    if front := FRONT.search(text):
        drawn, file = results_of(own).front(re.split(r"; *", front[1])), page.with_suffix(".svg")
        if write:
            file.write_text(drawn)
        elif not file.exists() or file.read_text() != drawn:
            fault(front.start(), f"{file.name} is not what the counts give")
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


def leaderboard(root: Path) -> str:
    """One table over all packed studies for each set of problems, the highest pass@1 first."""
    tracks: dict[str, list[tuple[float, list[str]]]] = {}
    for folder in sorted(file.parent for file in (root / PAGES).glob("*/arms.json")):
        results = results_of(folder)
        link = f"[{folder.name.removeprefix('study-')}]({folder.name}.md)"
        planned = len(results.study["seeds"])
        for arm in results.arms:
            finished = results.runs(arm)
            config, given = finished[0].config, (run.info.get("commit") for run in finished)
            commits = sorted({str(commit) for commit in given if commit})
            track = (
                f"## task={config['task']['name']}, split {config['eval']['split']}, temperature "
                f"{config['eval']['temperature']:g}\n\nProblems: `{finished[0].info['data_hash']}`."
            )
            names = (*LEADERBOARD_METRICS, "generated_tokens", "judged_programs")
            cells = [results.cell(arm, name) or Cell(nan) for name in names]
            doubts = {
                f"{len(finished)} of {planned} seeds": len(finished) < planned,
                f"{planned} seeds planned": planned < 5,
                "evaluated on problems for choosing": not results.study.get("final"),
                "uncommitted code": any(commit.endswith("+") for commit in commits),
            }
            said = "; ".join(doubt for doubt, holds in doubts.items() if holds) or "–"
            row = [f"`{arm}`", config["model"]["name"], link, *(cell.text() for cell in cells)]
            tracks.setdefault(track, []).append((cells[0].mean, [*row, ", ".join(commits), said]))
    head = ["arm", "starts from", "study", *LEADERBOARD_METRICS]
    head += ["generated tokens", "judged programs", "commit", "doubts"]
    parts = [
        "# Leaderboard\n\nWritten by `python -m analysis.results write=true` from the counts of "
        "all studies beside this page. Means over seeds, 95 % intervals over seeds and problems. "
        "Neighbours are seldom separated: the study's page has the tests. Tokens and programs are "
        "those of one run's training."
    ]
    for track in sorted(tracks):
        rows = sorted(tracks[track], key=lambda each: -each[0])
        parts += [track, markdown_table(head, [row for _, row in rows])]
    return "\n\n".join(parts) + "\n"


def check(root: Path, write: bool) -> list[str]:
    """Check, or write, all pages below docs and the README; return the faults."""
    faults, quotes = list[str](), 0
    for page in sorted([root / "README.md", *(root / "docs").rglob("*.md")]):
        right, wrong, number = checked(page, root, write)
        if write:
            page.write_text(right)
            wrong = checked(page, root)[1]
        faults, quotes = faults + wrong, quotes + number
    board, right = root / PAGES / "leaderboard.md", leaderboard(root)
    if write:
        board.write_text(right)
    elif board.read_text() != right:
        faults.append(f"{PAGES / board.name}:1: is not what the counts give; write=true writes it")
    print(f"{quotes} quoted numbers, {len(list((root / PAGES).glob('*/arms.json')))} studies")
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
    files = (runs.ARMS, runs.CONTRASTS, *tables, study.name)
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
