"""The verdicts of every answer of evaluated conversations, by the public and the hidden tests."""

from __future__ import annotations

from collections.abc import Sequence

from envs.environment import Environment, Submission
from envs.feedback import Feedback
from envs.judge.extract import as_response
from envs.problem import Verdict
from experiments.sample import Sample


def turn_verdicts(
    samples: Sequence[Sample], judge: Environment, feedback: Feedback
) -> list[list[tuple[Verdict | None, Verdict]]]:
    """Return for each answer of each sample its verdicts by the public and the hidden tests.

    A conversation needs no hidden verdict of an answer before the last, and no public one of the
    last answer that was left, so these are found now. None: there are no public tests.
    """
    found: list[list[list[Verdict | None]]] = []
    missing: list[tuple[list[Verdict | None], int, Submission]] = []
    for sample in samples:
        problem, last = sample.prompt.problem, len(sample.turns) - 1
        rows: list[list[Verdict | None]] = []
        for place, turn in enumerate(sample.turns):
            hidden = sample.judgement if place == last else None
            row: list[Verdict | None] = [
                None if one is None else one.verdict for one in (turn.public, hidden)
            ]
            program = (hidden or turn.public or sample.judgement).program
            for which, tests in enumerate((feedback.public(problem), problem)):
                if row[which] is None and tests is not None:
                    text = as_response(program) if program else ""
                    missing.append((row, which, Submission(tests, text)))
            rows.append(row)
        found.append(rows)
    judged = judge.judge([submission for _, _, submission in missing])
    for (row, which, _), judgement in zip(missing, judged, strict=True):
        row[which] = judgement.verdict
    return [[_both(row) for row in rows] for rows in found]


def _both(row: Sequence[Verdict | None]) -> tuple[Verdict | None, Verdict]:
    public, hidden = row
    assert hidden is not None, "every problem has hidden tests"
    return public, hidden
