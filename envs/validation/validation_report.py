"""The report of `envs.validate`: verdicts by label, error rates, cheap programs, exceptions."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from envs.cheap_programs import CHEAP_PROGRAMS
from envs.problem import Judgement, Verdict
from envs.readable import readable
from envs.validation.judge_errors import ErrorRates
from envs.validation.labelled_programs import CHEAP, KINDS, LabelledProgram
from envs.validation.several_answers import AnswerEvidence

_MAX_LISTED = 40  # exceptions, and problems that accept cheap programs
_MAX_LINE_CHARS = 2000
_MARKED = " (problem needs a checker)"


@dataclass
class Report:
    """Counts of programs by (kind, needs_checker, verdict), and the disagreements."""

    verdicts: Counter[tuple[str, bool, Verdict]] = field(default_factory=Counter)
    # (needs_checker, problem) → the cheap programs that it accepts
    earned: dict[tuple[bool, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    # names of the problems that cheap programs were run on, by needs_checker
    tried: dict[bool, set[str]] = field(default_factory=lambda: defaultdict(set))
    cheap_infra_errors: int = 0
    # problem without a checker program or mark → signs of several answers
    answers: dict[str, AnswerEvidence] = field(default_factory=lambda: defaultdict(AnswerEvidence))
    exceptions: list[str] = field(default_factory=list)  # verdicts against label or expectation

    def add(self, labelled: LabelledProgram, judgement: Judgement) -> None:
        """Count one program. An INFRA_ERROR is always an exception."""
        reason = (judgement.detail.splitlines() or [""])[-1]
        name = f"{labelled.problem.name} {labelled.kind} {labelled.index}"
        accepted = judgement.verdict is Verdict.ACCEPTED
        if labelled.kind == CHEAP:
            agrees = self._add_cheap(labelled, judgement)
            name = f"{labelled.problem.name} {CHEAP_PROGRAMS[labelled.index]!r}"
            if labelled.strength.cheap_passed is not None:
                computed = "REJECTED" if accepted else "ACCEPTED"
                reason = f"{reason} (computed from its outputs: {computed})"
        else:
            self.verdicts[labelled.kind, labelled.needs_checker, judgement.verdict] += 1
            right = labelled.kind == "solution"
            agrees = labelled.needs_checker or accepted == right
            if not labelled.needs_checker and labelled.problem.checker_program is None:
                self.answers[labelled.problem.name].add(labelled.problem, right, judgement)
        if judgement.verdict is Verdict.INFRA_ERROR or not agrees:
            self.exceptions.append(f"{name}: {judgement.verdict} {reason}")

    def _add_cheap(self, labelled: LabelledProgram, judgement: Judgement) -> bool:
        """Count a cheap program; return whether its run ended as the checker alone says."""
        accepted = judgement.verdict is Verdict.ACCEPTED
        self.tried[labelled.needs_checker].add(labelled.problem.name)
        self.cheap_infra_errors += judgement.verdict is Verdict.INFRA_ERROR
        if accepted:
            key = (labelled.needs_checker, labelled.problem.name)
            self.earned[key].append(CHEAP_PROGRAMS[labelled.index])
        passed = labelled.strength.cheap_passed
        return passed is None or accepted == (passed[labelled.index] == labelled.strength.tests)

    @property
    def infra_errors(self) -> int:
        """Number of programs without a verdict."""
        own = sum(n for (_, _, verdict), n in self.verdicts.items() if verdict == "INFRA_ERROR")
        return own + self.cheap_infra_errors


def show(
    report: Report, rates: dict[bool, ErrorRates], skipped: Counter[str], console: Console
) -> None:
    """Print counts, error rates, skipped rows and exceptions; `rates` are by needs_checker."""
    console.print(_verdict_table(report))
    for needs_checker, measured in rates.items():
        if line := error_line(measured):
            console.print(line + _MARKED * needs_checker, soft_wrap=True)
    if report.tried:
        console.print(_cheap_table(report))
        lines = [
            f"{problem}: {', '.join(name for name in CHEAP_PROGRAMS if name in accepted)}"
            + _MARKED * needs_checker
            for (needs_checker, problem), accepted in sorted(report.earned.items())
        ]
        _list("problems that accept a cheap program", lines, console)
    evidence = {name: answers.line() for name, answers in sorted(report.answers.items())}
    _list(
        "several answers?", [f"{name}: {line}" for name, line in evidence.items() if line], console
    )
    for reason, count in sorted(skipped.items()):
        line = f"rows skipped, {readable(reason, _MAX_LINE_CHARS)}: {count}"
        console.print(line, markup=False, soft_wrap=True)
    _list("not as the data set says", report.exceptions, console)


def error_line(rates: ErrorRates) -> str:
    """Return both error rates in words, with intervals; "" without programs."""
    parts = []
    counts = rates.counts
    for verb, interval, number, label in (
        ("rejects", rates.false_rejects, counts.right, "right"),
        ("accepts", rates.false_accepts, counts.wrong, "wrong"),
    ):
        if interval:
            share, low, high = (f"{100 * value:.1f}" for value in interval)
            parts.append(f"{verb} {share} % [{low}, {high}] of {number} {label} programs")
    return f"the judge {' and '.join(parts)}" if parts else ""


def rejected_line(report: Report) -> str:
    """Return how many of the data set's right programs failed; "" if none did.

    Problems that need a checker are left out, and so are programs without a verdict.
    """
    counts = {
        verdict: count
        for (kind, needs_checker, verdict), count in report.verdicts.items()
        if kind == "solution" and not needs_checker and verdict is not Verdict.INFRA_ERROR
    }
    right, accepted = sum(counts.values()), counts.get(Verdict.ACCEPTED, 0)
    if right == accepted:
        return ""
    return (
        f"{right - accepted} of {right} programs that the data set calls right failed (listed "
        "above): they are wrong, or its tests are, or the columns are read in another way than "
        "they are meant"
    )


def _list(title: str, lines: list[str], console: Console) -> None:
    if lines:
        console.print(f"{title}: {len(lines)}")
    for line in lines[:_MAX_LISTED]:
        shown = readable(line, _MAX_LINE_CHARS)
        console.print(f"  {shown}", markup=False, highlight=False, soft_wrap=True)


def _verdict_table(report: Report) -> Table:
    table = Table("programs", "judged", "accepted", "rejected", "reasons")
    for kind in KINDS:
        for needs_checker in (False, True):
            counts = {
                verdict: count
                for (*group, verdict), count in report.verdicts.items()
                if group == [kind, needs_checker]
            }
            if counts:
                label = "right" if kind == "solution" else "wrong"
                total, accepted = sum(counts.values()), counts.pop(Verdict.ACCEPTED, 0)
                reasons = ", ".join(f"{verdict} {n}" for verdict, n in sorted(counts.items()))
                label += _MARKED * needs_checker
                table.add_row(label, str(total), str(accepted), str(total - accepted), reasons)
    return table


def _cheap_table(report: Report) -> Table:
    marked = [mark for mark in (False, True) if report.tried[mark]]
    headings = [f"problems that accept it{_MARKED * mark}" for mark in marked]
    table = Table("cheap program", *headings)
    accepted = {mark: [p for (m, _), p in report.earned.items() if m == mark] for mark in marked}
    for name in CHEAP_PROGRAMS:
        table.add_row(name, *(str(sum(name in one for one in accepted[mark])) for mark in marked))
    totals = (f"{len(accepted[mark])} of {len(report.tried[mark])}" for mark in marked)
    table.add_row("any", *totals)
    return table
