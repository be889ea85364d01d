"""Conversations for the page's sample explorer: every answer with its verdicts and observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.load.run_folders import TURN_COLUMNS, Run
from analysis.metrics.normal_form import normal_form, precompute_normal_forms

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
