"""What the page's matrix and its sample explorer show, packed small.

The matrix counts all samples. The explorer keeps every sample of a comparison of usual size; of a
larger one, by the rule of `kept`, which the page states.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.run_folders import Run
from analysis.metrics.normal_form import normal_form, precompute_normal_forms
from analysis.report.section import Section

MOST_SAMPLES = 150_000  # of a page
FEWEST = 10  # samples of a cell; before there are fewer, evaluations on the way are left out
MOST_BYTES = 3_000_000  # of a page, packed
# Forms of a cell, characters of a program, share of problems: the first that fits is taken.
SIZES = ((40, 20_000, 1), (12, 8_000, 1), (6, 4_000, 1), (3, 2_000, 1), (3, 2_000, 4), (2, 800, 16))
MOST_PROMPT = 20_000  # characters
CELL = ["column", "step", "problem"]


def packed(data: dict[str, Any]) -> str:
    """JSON, gzip, base64: letters that no browser takes for markup."""
    # Levels 8 and 9 take three and four times as long for a twentieth.
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(plain, 7, mtime=0)).decode()


def matrix(section: Section) -> dict[str, Any]:
    """`problems` sorted by name, and for each the accepted and judged samples of each stage."""
    found = []
    for stage in section.stages:
        found.append(pd.concat(stage.counts).groupby(level=0).sum())
    names = sorted(set().union(*(part.index for part in found)))
    whole = [part.reindex(names, fill_value=0) for part in found]
    tier = _difficulties(section)
    return {
        "columns": [stage.label for stage in section.stages],
        "bases": [stage.step == 0 for stage in section.stages],
        "problems": names,
        "difficulty": [tier.get(name, "") for name in names],
        "accepted": [part["c"].astype(int).tolist() for part in whole],
        "judged": [part["n"].astype(int).tolist() for part in whole],
    }


def _difficulties(section: Section) -> dict[str, str]:
    found: dict[str, str] = {}
    for samples in (part for stage in section.stages for part in stage.samples):
        if "difficulty" in samples:
            first = samples.drop_duplicates("problem")
            found |= dict(zip(first["problem"], first["difficulty"].fillna(""), strict=True))
    return found


def explorer(section: Section, share: float = 1.0) -> tuple[dict[str, Any], str]:
    """The explorer's data, and in words what was left out ("" where nothing was).

    `share` of a page's samples and bytes is this section's.
    """
    runs, table = _samples(section)
    table, said = kept(table, int(MOST_SAMPLES * share))
    number, programs = pd.factorize(_programs(runs, table))
    precompute_normal_forms(programs)
    form = np.array([normal_form(program) or program.strip() for program in programs], object)
    # As Python's own texts, which are not made anew each time that they are read.
    table["program"] = pd.Series(programs[number], dtype=object)
    table["form"] = pd.Series(form[number], dtype=object)
    prompts = _prompts(section)
    for forms, chars, every in SIZES:
        data, cut = _cells(table, prompts, forms, chars, every)
        if len(packed(data)) <= MOST_BYTES * share:
            break
    return data, " ".join([*said, *cut])


def _samples(section: Section) -> tuple[list[Run], pd.DataFrame]:
    """Every sample but for its program, which is row `row` of the run at `run`.

    The column is the place among the stages, the seed that among their runs.
    """
    runs, parts = [], []
    for place, stage in enumerate(section.stages):
        for seed, run in enumerate(stage.runs if stage.step == 0 else _runs(section, stage.label)):
            own = run.evals[["step", "problem", "sample", "verdict"]].assign(
                row=np.arange(len(run.evals)), run=len(runs), column=place, seed=seed
            )
            parts.append(own[(own["step"] > 0) == (stage.step > 0)])
            runs.append(run)
    return runs, pd.concat(parts, ignore_index=True)


def _programs(runs: Sequence[Run], table: pd.DataFrame) -> np.ndarray:
    """The program of each row of the table."""
    found = np.empty(len(table), dtype=object)
    for number, places in table.groupby("run").indices.items():
        rows = table["row"].to_numpy()[places]
        found[places] = runs[number].evals["program"].iloc[rows].to_numpy(dtype=object)
    return found


def _runs(section: Section, label: str) -> Sequence[Run]:
    return next(group.runs for group in section.groups if group.label == label)


def kept(table: pd.DataFrame, most: int) -> tuple[pd.DataFrame, list[str]]:
    """At most about `most` samples, and sentences on the rule where some are left out.

    The same number of each cell (a group's samples for a problem at an evaluation), the first of
    each seed. Where these would be fewer than FEWEST, evaluations on the way go first, then
    problems, of which every so many-th stays.
    """
    said = []
    size = _per_cell(table, most)
    if size < FEWEST:
        last = table.groupby("column")["step"].transform("max")
        table = table[table["step"] == last]
        size = _per_cell(table, most)
        said.append("Only evaluations before training and at its end are kept here.")
    if size < FEWEST:
        names = np.sort(table["problem"].unique())
        every = -(-FEWEST * len(table.groupby(CELL)) // most)
        table = table[table["problem"].isin(names[::every])]
        size = FEWEST
        said.append(f"One problem in {every} by name is kept here, of {len(names):,}.")
    table = table.sort_values(["sample", "seed"], kind="stable")
    place = table.groupby(CELL).cumcount()
    if (place >= size).any():
        said.append(
            f"Of each group's samples for a problem at an evaluation {size} are kept here, the "
            "first of each seed; the matrix and all numbers above count every sample."
        )
        table = table[place < size]
    return table.reset_index(drop=True), said


def _per_cell(table: pd.DataFrame, most: int) -> int:
    """The greatest number of samples a cell with which there are at most `most`."""
    sizes = np.sort(table.groupby(CELL).size().to_numpy())
    if sizes.sum() <= most:
        return int(sizes[-1])
    below = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    total = below + sizes * np.arange(len(sizes), 0, -1)  # were each cell cut to this one's size
    place = int(np.searchsorted(total, most, side="right"))
    return int((most - below[place]) // (len(sizes) - place))


def _prompts(section: Section) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in section.runs:
        if not found or not set(run.evals["problem"].unique()) <= set(found):
            found |= run.prompts()
    return found


def _cells(
    table: pd.DataFrame, prompts: dict[str, str], forms: int, chars: int, every: int
) -> tuple[dict[str, Any], list[str]]:
    """The packed form of these samples, with so many forms a cell; and what that left out."""
    names = np.sort(table["problem"].unique())[::every]
    said = [] if every == 1 else [f"To keep the page small, one problem in {every} is kept here."]
    if every > 1:
        table = table[table["problem"].isin(names)]
    verdicts = sorted(table["verdict"].unique(), key=lambda name: (name != "ACCEPTED", name))
    has_right = verdicts[:1] == ["ACCEPTED"]
    at_verdict = {name: i for i, name in enumerate(verdicts)}
    number = {program: i for i, program in enumerate(table["program"].unique())}
    used: dict[int, int] = {}  # number of a program → its place among those that are shown
    beyond, problems = 0, []
    each = table[["column", "step", "form", "program", "verdict"]].to_numpy(object)
    for name, places in sorted(table.groupby("problem").indices.items()):
        part = each[places].tolist()
        shown = _shown((form, program) for _, _, form, program, _ in part)
        order = {form: i for i, form in enumerate(shown)}
        cells: dict[str, Any] = {}
        for column, step, form, _, verdict in part:
            cell = cells.setdefault(f"{column}:{step}", {})
            cell.setdefault(form, [0] * len(verdicts))[at_verdict[verdict]] += 1
        for key, cell in cells.items():
            # Right programs first, then the most frequent.
            ranked = sorted(
                cell, key=lambda form: (-cell[form][0] * has_right, -sum(cell[form]), order[form])
            )
            rows = []
            for form in ranked[:forms]:
                program = number[shown[form]]
                place = used.setdefault(program, len(used))
                rows.append([order[form] + 1, place, *cell[form]])
            if rest := ranked[forms:]:
                beyond += len(rest)
                rows.append([0, len(rest), *np.sum([cell[form] for form in rest], 0).tolist()])
            cells[key] = rows
        prompt = prompts.get(str(name), "")
        problems.append({"name": str(name), "prompt": prompt[:MOST_PROMPT], "cells": cells})
    if beyond:
        said.append(
            f"Of each group's programs for a problem the {forms} most frequent forms are shown; "
            f"rarer ones ({beyond:,} in all) are counted."
        )
    texts = list(number)
    programs = [texts[program] for program in used]
    cut = sum(len(program) > chars for program in programs)
    if cut:
        said.append(f"{cut:,} programs are cut after {chars:,} characters.")
        mark = "\n… (cut here)"
        programs = [p if len(p) <= chars else p[:chars] + mark for p in programs]
    steps = sorted(int(step) for step in table["step"].unique())
    return {
        "problems": problems,
        "programs": [program.replace("\r\n", "\n") for program in programs],
        "verdicts": verdicts,
        "steps": steps,
    }, said


def _shown(written: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Form → its most frequent writing, the most frequent form first; of each (form, program)."""
    totals: Counter[str] = Counter()
    first: dict[str, str] = {}
    for (form, program), count in Counter(written).most_common():
        totals[form] += count
        first.setdefault(form, program)
    return {form: first[form] for form, _ in totals.most_common()}
