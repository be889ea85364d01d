"""Write a report: its tables in four formats, and one self-contained page.

The page's matrix of problems counts all samples. Its explorer has the programs before training and
at its end; of a large comparison a part of them, and the page states which.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from analysis import rendering
from analysis.budgets import AREA
from analysis.experiment import Experiment
from analysis.figures import draw_figures
from analysis.findings import caveats, difference_matrix, findings, headline_metrics, tuning_ways
from analysis.groups import NOTHING, differing_settings, shared_facts, spoken
from analysis.metrics import TITLES, reported_metrics
from analysis.programs import normal_form, precompute_normal_forms
from analysis.rendering import Section
from analysis.runs import TURN_COLUMNS, Run
from analysis.tables import CHECKS, experiment_tables
from analysis.turns import TURN_TABLES
from envs.messages import readable

MOST_SAMPLES = 150_000  # of a page
MOST_BYTES = 1_700_000  # of a page, packed; tables and figures come on top
MOST_PROMPT = 20_000  # characters
FEWEST = 10  # samples of a model for a problem, before problems are left out
# forms of a model for a problem, characters of a program; the first that fit are used
LIMITS = ((40, 20_000), (12, 8_000), (6, 4_000), (3, 2_000), (2, 800))
SEPARATOR = "\x00"  # between the forms of answers; no program that can be parsed has it


class Answer(NamedTuple):
    """One answer: its program, its public and hidden verdict, and the observation after it."""

    program: str
    public: str
    hidden: str
    observation: str


Shown = str | tuple[Answer, ...]  # a program, or the conversation that it ends


def pack(data: dict[str, Any]) -> str:
    """Return data as JSON, gzipped, in base64: letters that no browser takes for markup."""
    # Levels 8 and 9 take three and four times as long and save a twentieth.
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(plain, 7, mtime=0)).decode()


def matrix_data(experiment: Experiment) -> dict[str, Any]:
    """Return the accepted and judged samples of each model, for each problem by name."""
    counts = [pd.concat(model.counts).groupby(level=0).sum() for model in experiment.models]
    names = sorted(set().union(*(by_problem.index for by_problem in counts)))
    counts = [by_problem.reindex(names, fill_value=0) for by_problem in counts]
    difficulty = {k: v for model in experiment.models for k, v in model.difficulties.items()}
    return {
        "columns": [spoken(model.label) for model in experiment.models],
        "bases": [model.is_base for model in experiment.models],
        "problems": names,
        "difficulty": [difficulty.get(name, "") for name in names],
        "accepted": [by_problem["c"].astype(int).tolist() for by_problem in counts],
        "judged": [by_problem["n"].astype(int).tolist() for by_problem in counts],
    }


def explorer_data(experiment: Experiment, page_share: float = 1.0) -> tuple[dict[str, Any], str]:
    """Return the explorer's data, and sentences on omissions ("" if there are none).

    `page_share` is this section's share of a page's samples and bytes.
    """
    table, notes = _samples(experiment, int(MOST_SAMPLES * page_share))
    prompts: dict[str, str] = {}
    for run in experiment.runs:
        if not set(table["problem"]) <= set(prompts):
            prompts |= run.prompts()
    for forms, characters in LIMITS:
        data = _explorer(table, prompts, forms, characters)
        if len(pack(data)) <= MOST_BYTES * page_share:
            break
    if (forms, characters) != LIMITS[0]:
        notes.append(
            f"Of each model and problem the {forms} most frequent programs are shown, and rarer "
            f"ones counted; programs are cut after {characters:,} characters."
        )
    return data, " ".join(notes)


def _samples(experiment: Experiment, most: int) -> tuple[pd.DataFrame, list[str]]:
    """Return column (of the model), problem, verdict, shown and form of samples; and omissions.

    Of approximately `most` samples, each model has equally many for each problem, the first of each
    seed. Before these are fewer than FEWEST, only every n-th problem stays.
    """
    table = pd.concat(
        [
            samples.assign(column=column, seed=seed)
            for column, model in enumerate(experiment.models)
            for seed, samples in enumerate(model.samples)
        ]
    )
    notes, names = [], np.sort(table["problem"].unique())
    cells = len(experiment.models) * len(names)
    if stride := len(table) > most and FEWEST * cells // most:
        table = table[table["problem"].isin(names[:: stride + 1])]
        notes.append(f"One problem in {stride + 1} (by name) is shown here.")
    if len(table) > most:
        size = max(FEWEST, most // cells)
        table = table.sort_values(["sample", "seed"], kind="stable")
        table = table[table.groupby(["column", "problem"]).cumcount() < size]
        notes.append(
            f"Of each model and problem, {size} samples are shown, the first of each seed."
        )
    shown = _shown(table)
    codes, distinct = pd.factorize(shown)
    samples = [programs_of(one) for one in distinct]
    precompute_normal_forms(program for programs in samples for program in programs)
    joined = [SEPARATOR.join(normal_form(p) or p.strip() for p in programs) for programs in samples]
    forms = np.array(joined, object)[codes]
    table = table[["column", "problem", "verdict"]].reset_index(drop=True)
    texts = {"shown": pd.Series(shown, dtype=object), "form": pd.Series(forms, dtype=object)}
    return table.assign(**texts), notes


def _shown(table: pd.DataFrame) -> np.ndarray:
    """Return what is shown of each sample: its program, or its conversation."""
    shown = table["program"].to_numpy(object).copy()
    if TURN_COLUMNS[0] in table:
        names = ("turn_programs", "turn_public", "turn_verdicts", "observations")
        columns = (table[name] for name in names)
        for i, (programs, public, hidden, seen) in enumerate(zip(*columns, strict=True)):
            if isinstance(hidden, Sequence | np.ndarray):  # a run without turns has none
                rest = [""] * len(hidden)  # the last has no observation, one may have no verdict
                parts = zip(programs, [*public, *rest], hidden, [*seen, *rest], strict=False)
                shown[i] = tuple(Answer(program or "", *others) for program, *others in parts)
    return shown


def programs_of(shown: Shown) -> list[str]:
    """Return the programs of a sample, first to last."""
    return [shown] if isinstance(shown, str) else [answer.program for answer in shown]


def _explorer(
    table: pd.DataFrame, prompts: dict[str, str], most_forms: int, most: int
) -> dict[str, Any]:
    """Return the explorer's data with at most so many forms of a cell, and characters of a program.

    A problem's cells have the column as key and a row per form: number of the form, index of its
    program, and the count of each verdict. A last row [0, forms, counts …] sums up rarer forms.
    `conversations`, beside `programs`, has the answers; it is there only if a sample has several.
    """

    def cut(text: str) -> str:
        short = text if len(text) <= most else text[:most] + "\n… (cut here)"
        return short.replace("\r\n", "\n")

    verdicts = sorted(table["verdict"].unique(), key=lambda name: (name != "ACCEPTED", name))
    has_accepted = verdicts[:1] == ["ACCEPTED"]
    place_of: dict[Shown, int] = {}  # program or conversation → its index on the page
    problems = []
    # As Python strings: a series would convert item by item.
    rows_of = table[["column", "form", "verdict", "shown"]].to_numpy(object)
    for name, places in sorted(table.groupby("problem").indices.items()):
        samples = rows_of[places].tolist()
        totals, representative = Counter(form for _, form, *_ in samples), dict[str, Shown]()
        pairs = Counter((form, shown) for _, form, _, shown in samples)
        for (form, shown), _ in pairs.most_common():
            representative.setdefault(form, shown)
        number = {form: i + 1 for i, (form, _) in enumerate(totals.most_common())}
        counts: dict[int, dict[str, list[int]]] = {}
        for column, form, verdict, _ in samples:
            by_form = counts.setdefault(column, {}).setdefault(form, [0] * len(verdicts))
            by_form[verdicts.index(verdict)] += 1
        cells = {}
        for column, by in counts.items():
            ranked = sorted(by, key=lambda f: (-by[f][0] * has_accepted, -sum(by[f]), number[f]))
            rows = [
                [number[f], place_of.setdefault(representative[f], len(place_of)), *by[f]]
                for f in ranked[:most_forms]
            ]
            if rest := ranked[most_forms:]:
                rows.append([0, len(rest), *np.sum([by[form] for form in rest], 0).tolist()])
            cells[str(column)] = rows
        prompt = prompts.get(str(name), "")[:MOST_PROMPT]
        problems.append({"name": str(name), "prompt": prompt, "cells": cells})
    data: dict[str, Any] = {
        "problems": problems,
        "programs": [cut(programs_of(one)[-1]) for one in place_of],
        "verdicts": verdicts,
    }
    if any(not isinstance(one, str) for one in place_of):
        data["conversations"] = [
            []
            if isinstance(one, str)
            else [[cut(a.program), a.public, a.hidden, cut(a.observation)] for a in one]
            for one in place_of
        ]
    return data


# Sections.

WEB = Path(__file__).parent / "web"
MOST_IN_MATRIX = 30  # groups up to which differences are shown as a matrix
OFF_POLICY = (  # settings by which a group learns from older weights or from other runs
    "setting == 'train.lag' and value != '0' or setting == 'train.sync_every' and value != '1' or "
    "setting in ('replay.from_runs', 'replay.files') and value not in ('[]', 'null')"
)
INTERVALS_IN_MATRIX = 8  # groups up to which a matrix has room for intervals


def build_section(name: str, slug: str, experiment: Experiment, page_share: float) -> Section:
    """Lay out an experiment; `page_share` is the section's share of the page's programs."""
    metrics, trained = headline_metrics(experiment.ks), len(experiment.trained)
    matrices = [
        (TITLES.get(m, m), difference_matrix(experiment, m, trained <= INTERVALS_IN_MATRIX))
        for m in metrics
        if 1 < trained <= MOST_IN_MATRIX
    ]
    section = Section(
        name=name,
        slug=slug,
        ks=experiment.ks,
        temperatures=experiment.temperatures,
        findings=findings(experiment),
        notes=[*caveats(experiment.groups, experiment.models), *experiment.notes],
        tables=experiment_tables(experiment),
        matrices=[(title, cells) for title, cells in matrices if len(cells[1]) > 1],
        context={},
    )
    section.context.update(_context(experiment, section))
    if experiment.models:
        packed, omitted = {"matrix": matrix_data(experiment)}, ""
        if not experiment.packed:
            packed["explorer"], omitted = explorer_data(experiment, page_share)
        section.context.update(packed=pack(packed), omitted=omitted)
    return section


def _context(experiment: Experiment, section: Section) -> dict[str, Any]:
    """Return what the template shows beside the section's tables: settings, fits and figures."""
    settings = differing_settings(experiment.groups).reset_index()
    context: dict[str, Any] = {
        "presets": experiment.plan.presets or {},
        "starts": experiment.starts,
        "off_policy": list(section.tables["settings.csv"].query(OFF_POLICY)["group"].unique()),
        "packed_study": experiment.packed,
        "facts": shared_facts(experiment.groups),
        "settings": (list(settings), settings.to_numpy().tolist()),
        "commands": [(g.label, command(g.runs[0]), g.runs[0].info) for g in experiment.groups],
        "figures": [],
        "tuning": tuning_ways(experiment.groups),
        "window": experiment.window,
    }
    if len(section.results):
        context["styles"], context["figures"] = draw_figures(experiment, section.tables)
    return context


# Files.


def write_report(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; `skipped` are notes on runs that are in no section.

    Raises OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in sections[0].tables:
        _write_table(sections, name, out)
    (out / "table.md").write_text(rendering.markdown_document(sections, skipped), encoding="utf-8")
    (out / "table.tex").write_text(rendering.latex_document(sections), encoding="utf-8")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    context = {"made": made, "sections": sections, "skipped": skipped}
    (out / "report.html").write_text(render_page(context), encoding="utf-8")


def _write_table(sections: Sequence[Section], name: str, out: Path) -> None:
    """Write one table of all sections, in CSV and Parquet; of turns and ranks only with rows."""
    tables = [section.tables[name].assign(experiment=section.name) for section in sections]
    # A table without rows has no types, and would turn the others' counts into floats.
    filled = [table for table in tables if len(table)]
    parquet = (out / name).with_suffix(".parquet")
    if name in (*TURN_TABLES, "ranks.csv") and not filled:
        for file in (out / name, parquet):  # of an earlier report
            file.unlink(missing_ok=True)
        return
    table = pd.concat(filled or tables[:1])
    table.insert(0, "experiment", table.pop("experiment"))
    table.to_csv(out / name, index=False)
    # Parquet has no type for columns that mix texts and numbers.
    mixed = {str(n): table[n].astype("string") for n in table if table[n].dtype == object}
    table.assign(**mixed).to_parquet(parquet, index=False)


# The page.


def render_page(context: Mapping[str, Any]) -> str:
    """Fill the template, with style and script inside it.

    All text from run folders is escaped and made readable. The page's content security policy
    allows no request and no script except its own.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(WEB),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: readable(value) if type(value) is str else value,
    )
    script = (WEB / "page.js").read_text(encoding="utf-8")
    script += (WEB / "explorer.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.filters["breakable"] = _breakable
    environment.globals |= {
        "show": rendering,
        "isna": pd.isna,
        "AREA": AREA,
        "headline_metrics": headline_metrics,
        "meanings": reported_metrics(sorted({k for s in context["sections"] for k in s.ks})),
        "checks": CHECKS,
        "script": script,
        "script_hash": f"sha256-{digest}",
        "css": (WEB / "page.css").read_text(encoding="utf-8"),
    }
    return environment.get_template("page.html.j2").render(context)


def _breakable(text: str) -> Markup:
    """Allow a line break after each part of a name, such as a_b/c, for narrow columns."""
    return Markup(re.sub(r"([_/])(?=.)", r"\1<wbr>", str(escape(readable(text)))))


def command(run: Run) -> str:
    """Return the command that makes a run again; of a packed run, the one that began it."""
    if run.packed:
        return str(run.info.get("command") or NOTHING)
    path = run.path.resolve()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"python run.py --config-path {shlex.quote(str(shown))}"
