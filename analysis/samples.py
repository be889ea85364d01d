"""Packed data for the page's matrix of problems and its sample explorer.

The matrix counts all samples. The explorer has every sample of a comparison of usual size. For a
larger one, `choose_samples` selects samples and the page states the rule.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.experiment import Experiment
from analysis.normal_form import normal_form, precompute_normal_forms
from analysis.runs import TURN_COLUMNS, Run

MOST_SAMPLES = 150_000  # of a page
FEWEST = 10  # samples of a cell; intermediate evaluations are dropped before it has fewer
MOST_BYTES = 1_700_000  # of a page, packed; tables and figures come on top
MOST_PROMPT = 20_000  # characters
CELL = ["column", "step", "problem"]  # a group's samples for a problem at an evaluation


class Limits(NamedTuple):
    """Limits of the explorer's data; of the problems, every `stride`-th is shown."""

    forms: int  # of a cell
    characters: int  # of a program
    stride: int


LIMITS = (  # the first that fit are used
    Limits(40, 20_000, 1),
    Limits(12, 8_000, 1),
    Limits(6, 4_000, 1),
    Limits(3, 2_000, 1),
    Limits(3, 2_000, 4),
    Limits(2, 800, 16),
)


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
    difficulty = _difficulties(experiment)
    return {
        "columns": [model.label for model in experiment.models],
        "bases": [model.is_base for model in experiment.models],
        "problems": names,
        "difficulty": [difficulty.get(name, "") for name in names],
        "accepted": [by_problem["c"].astype(int).tolist() for by_problem in counts],
        "judged": [by_problem["n"].astype(int).tolist() for by_problem in counts],
    }


def _difficulties(experiment: Experiment) -> dict[str, str]:
    difficulties: dict[str, str] = {}
    for samples in (samples for model in experiment.models for samples in model.samples):
        if "difficulty" in samples:
            first = samples.drop_duplicates("problem")
            values = first["difficulty"].fillna("")
            difficulties |= dict(zip(first["problem"], values, strict=True))
    return difficulties


def explorer_data(experiment: Experiment, page_share: float = 1.0) -> tuple[dict[str, Any], str]:
    """Return the explorer's data, and sentences on omissions ("" if there are none).

    `page_share` is this section's share of a page's samples and bytes.
    """
    runs, table = _sample_table(experiment)
    table, sample_notes = choose_samples(table, int(MOST_SAMPLES * page_share))
    codes, shown = pd.factorize(shown_samples(runs, table, _programs(runs, table)))
    forms = np.array(forms_of(shown), object)
    # As Python strings, which are not created anew at each access.
    table["shown"] = pd.Series(shown[codes], dtype=object)
    table["form"] = pd.Series(forms[codes], dtype=object)
    prompts = _prompts(experiment)
    for limits in LIMITS:
        data, limit_notes = _explorer_cells(table, prompts, limits)
        if len(pack(data)) <= MOST_BYTES * page_share:
            break
    return data, " ".join([*sample_notes, *limit_notes])


def _sample_table(experiment: Experiment) -> tuple[list[Run], pd.DataFrame]:
    """Return the runs, and every sample without its program, which is row `row` of run `run`.

    `column` is the index of the sample's model, and `seed` that of the run among the model's.
    """
    runs: list[Run] = []
    parts = []
    for column, model in enumerate(experiment.models):
        model_runs = model.runs if model.is_base else _group_runs(experiment, model.label)
        for seed, run in enumerate(model_runs):
            samples = run.evals[["step", "problem", "sample", "verdict"]].assign(
                row=np.arange(len(run.evals)), run=len(runs), column=column, seed=seed
            )
            parts.append(samples[(samples["step"] == 0) == model.is_base])
            runs.append(run)
    return runs, pd.concat(parts, ignore_index=True)


def _group_runs(experiment: Experiment, label: str) -> Sequence[Run]:
    return next(group.runs for group in experiment.groups if group.label == label)


def _programs(runs: Sequence[Run], table: pd.DataFrame) -> np.ndarray:
    """Return the program of each row of the table."""
    programs = np.empty(len(table), dtype=object)
    run_of, row_of = table["run"].to_numpy(), table["row"].to_numpy()
    for i in np.unique(run_of):
        selected = np.flatnonzero(run_of == i)
        programs[selected] = runs[i].evals["program"].iloc[row_of[selected]].to_numpy(dtype=object)
    return programs


def choose_samples(table: pd.DataFrame, most: int) -> tuple[pd.DataFrame, list[str]]:
    """Return approximately at most `most` samples, and sentences on what was left out.

    Every cell (a group's samples for a problem at an evaluation) keeps the same number, the first
    of each seed. Before that would be below FEWEST, intermediate evaluations are dropped first,
    then problems, of which every n-th stays.
    """
    notes = []
    size = _samples_per_cell(table, most)
    if size < FEWEST and len(table) > most:
        last = table.groupby("column")["step"].transform("max")
        table = table[table["step"] == last]
        size = _samples_per_cell(table, most)
        notes.append("Only evaluations before training and at its end are kept here.")
    if size < FEWEST and len(table) > most:
        names = np.sort(table["problem"].unique())
        stride = -(-FEWEST * len(table.groupby(CELL)) // most)
        table = table[table["problem"].isin(names[::stride])]
        size = FEWEST
        notes.append(f"One problem in {stride} (by name) of {len(names):,} is shown here.")
    table = table.sort_values(["sample", "seed"], kind="stable")
    place_in_cell = table.groupby(CELL).cumcount()
    if (place_in_cell >= size).any():
        notes.append(
            f"For each group, problem and evaluation, {size} samples are shown here, the first of "
            "each seed; the matrix and all numbers above count every sample."
        )
        table = table[place_in_cell < size]
    return table.reset_index(drop=True), notes


def _samples_per_cell(table: pd.DataFrame, most: int) -> int:
    """Return the greatest number of samples per cell with at most `most` samples in all."""
    sizes = np.sort(table.groupby(CELL).size().to_numpy())
    if sizes.sum() <= most:
        return int(sizes[-1])
    below = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    total = below + sizes * np.arange(len(sizes), 0, -1)  # if each cell were cut to this one's size
    place = int(np.searchsorted(total, most, side="right"))
    return int((most - below[place]) // (len(sizes) - place))


def _prompts(experiment: Experiment) -> dict[str, str]:
    prompts: dict[str, str] = {}
    for run in experiment.runs:
        if not prompts or not set(run.evals["problem"].unique()) <= set(prompts):
            prompts |= run.prompts()
    return prompts


def _explorer_cells(
    table: pd.DataFrame, prompts: dict[str, str], limits: Limits
) -> tuple[dict[str, Any], list[str]]:
    """Return the explorer's data within these limits, and sentences on omissions.

    A problem's cells have the key "column:step" and a row per form: number of the form, index of
    its program, and the count of each verdict. A last row [0, forms, counts …] sums up rarer forms.
    `conversations`, beside `programs`, is there only if a sample is a conversation.
    """
    notes = []
    if limits.stride > 1:
        names = np.sort(table["problem"].unique())[:: limits.stride]
        table = table[table["problem"].isin(names)]
        notes.append(f"To keep the page small, one problem in {limits.stride} is shown here.")
    verdicts = sorted(table["verdict"].unique(), key=lambda name: (name != "ACCEPTED", name))
    place_of: dict[Shown, int] = {}  # program or conversation → its index on the page
    rare_forms, problems = 0, []
    rows = table[["column", "step", "form", "shown", "verdict"]].to_numpy(object)
    for name, places in sorted(table.groupby("problem").indices.items()):
        samples = rows[places].tolist()
        cells, rare = _problem_cells(samples, verdicts, limits.forms, place_of)
        rare_forms += rare
        prompt = prompts.get(str(name), "")
        problems.append({"name": str(name), "prompt": prompt[:MOST_PROMPT], "cells": cells})
    if rare_forms:
        notes.append(
            f"For each group and problem, the {limits.forms} most frequent forms are shown; rarer "
            f"ones ({rare_forms:,} in all) are only counted."
        )
    most = limits.characters
    if long := sum(len(program) > most for one in place_of for program in programs_of(one)):
        notes.append(f"{long:,} programs are cut after {most:,} characters.")
    data = {
        "problems": problems,
        "programs": [cut(programs_of(one)[-1], most) for one in place_of],
        "verdicts": verdicts,
        "steps": sorted(int(step) for step in table["step"].unique()),
    }
    if any(conversations := conversation_data(list(place_of), most)):
        data["conversations"] = conversations
    return data, notes


def _problem_cells(
    samples: Sequence[Sequence[Any]],
    verdicts: Sequence[str],
    most_forms: int,
    place_of: dict[Shown, int],
) -> tuple[dict[str, list[list[int]]], int]:
    """Return one problem's cells, and the number of rarer forms; adds to `place_of`.

    `samples` have column, step, form, program or conversation, and verdict.
    """
    verdict_index = {name: i for i, name in enumerate(verdicts)}
    has_accepted = verdicts[:1] == ["ACCEPTED"]
    representative = _representatives((form, shown) for _, _, form, shown, _ in samples)
    form_number = {form: i + 1 for i, form in enumerate(representative)}
    counts: dict[str, dict[str, list[int]]] = {}
    for column, step, form, _, verdict in samples:
        cell = counts.setdefault(f"{column}:{step}", {})
        cell.setdefault(form, [0] * len(verdicts))[verdict_index[verdict]] += 1
    rare_forms = 0
    cells = {}
    for key, by_form in counts.items():

        def rank(form: str, by_form: dict[str, list[int]] = by_form) -> tuple[int, int, int]:
            """Sort right programs first, then the most frequent."""
            return -by_form[form][0] * has_accepted, -sum(by_form[form]), form_number[form]

        ranked = sorted(by_form, key=rank)
        rows = []
        for form in ranked[:most_forms]:
            place = place_of.setdefault(representative[form], len(place_of))
            rows.append([form_number[form], place, *by_form[form]])
        if rest := ranked[most_forms:]:
            rare_forms += len(rest)
            sums = np.sum([by_form[form] for form in rest], 0).tolist()
            rows.append([0, len(rest), *sums])
        cells[key] = rows
    return cells, rare_forms


def _representatives(forms_and_samples: Iterable[tuple[str, Shown]]) -> dict[str, Shown]:
    """Return form → its most frequent program or conversation, the most frequent form first."""
    totals: Counter[str] = Counter()
    most_frequent: dict[str, Shown] = {}
    for (form, shown), count in Counter(forms_and_samples).most_common():
        totals[form] += count
        most_frequent.setdefault(form, shown)
    return {form: most_frequent[form] for form, _ in totals.most_common()}


SEPARATOR = "\x00"  # between the forms of answers; no program that can be parsed has it


class Answer(NamedTuple):
    """One answer: its program, its public and hidden verdict, and the observation after it."""

    program: str
    public: str
    hidden: str
    observation: str


Conversation = tuple[Answer, ...]
Shown = str | Conversation  # a program, or the conversation that it ends


def shown_samples(runs: Sequence[Run], table: pd.DataFrame, programs: np.ndarray) -> np.ndarray:
    """Return what the explorer shows of each row: its program, or its conversation.

    `table` has the run and the row of each sample, `programs` its program.
    """
    shown = programs.copy()
    run_of, row_of = table["run"].to_numpy(), table["row"].to_numpy()
    for i, run in enumerate(runs):
        if TURN_COLUMNS[0] not in run.evals:
            continue
        selected = np.flatnonzero(run_of == i)
        rows = run.evals.iloc[row_of[selected]]
        names = ("turn_programs", "turn_public", "turn_verdicts", "observations")
        for place, *columns in zip(selected, *(rows[name] for name in names), strict=True):
            shown[place] = _conversation(*columns)
    return shown


def _conversation(
    programs: Sequence[str], public: Sequence[str], hidden: Sequence[str], seen: Sequence[str]
) -> Conversation:
    """Return the answers; the last has no observation, and one may have no public verdict."""
    rest = len(programs)
    return tuple(
        Answer(*one)
        for one in zip(
            [program or "" for program in programs],
            [*public, *[""] * (rest - len(public))],
            hidden,
            [*seen, *[""] * (rest - len(seen))],
            strict=True,
        )
    )


def programs_of(shown: Shown) -> list[str]:
    """Return the programs of a sample, first to last."""
    return [shown] if isinstance(shown, str) else [answer.program for answer in shown]


def forms_of(shown: Iterable[Shown]) -> list[str]:
    """Return the form of each sample: the normal forms of its programs, one after the other.

    So a conversation of one answer has the form of a single program.
    """
    samples = [programs_of(one) for one in shown]
    precompute_normal_forms(program for programs in samples for program in programs)
    return [SEPARATOR.join(normal_form(p) or p.strip() for p in programs) for programs in samples]


def conversation_data(shown: Sequence[Shown], most: int) -> list[list[list[str]]]:
    """Return program, public, hidden verdict and observation of each answer; [] for a program.

    Each text is cut after `most` characters.
    """
    return [
        []
        if isinstance(one, str)
        else [
            [cut(answer.program, most), answer.public, answer.hidden, cut(answer.observation, most)]
            for answer in one
        ]
        for one in shown
    ]


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and a line that says so."""
    return (text if len(text) <= most else text[:most] + "\n… (cut here)").replace("\r\n", "\n")
