"""Sentences of pages whose numbers are recomputed from a packed study.

`sentences.yaml` beside the counts is a list:

    - file: README.md
      says: "Supervised training ends at {sft.pass@1}, {sft-spo.pass@1} from SPO."

A placeholder is {ARM.METRIC}, with the rows of the page's table of results as arms, {A-B.METRIC}
for a paired difference, or {runs}, the number of finished runs. METRIC is a column of table.csv or
costs.csv, a metric of turns.csv, `area`, `METRIC at AXIS` at equal budget, `COLUMN in second half`
(of metrics.parquet, the mean over seeds of the mean over the second half of the steps, or its range
over seeds), `COLUMN of METRIC over AXIS` (of curve_fits.csv), and for differences also `time` or
`memory`.
Options follow a colon, with commas between them:

    {sft.pass@1}                    .473
    {sft.pass@1:interval}           .473 [.445, .501]
    {sft.pass@1:letters}            ab
    {sft.trained_s}                 21
    {sft.pass@1 at judged_programs} .351
    {spo.weight/rejected in second half}       .006
    {spo.weight/rejected in second half:range} .000 to .032
    {raft.A of pass@1 over flops:interval}     .689 [.575, .871]
    {spo-sft.pass@10}               +.108 [.056, .159]
    {spo-sft.pass@10:mean}          +.108
    {spo-sft.pass@10:unsigned}      .108 [.056, .159]
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from statistics import fmean

import yaml
from rapidfuzz.fuzz import partial_ratio_alignment

from analysis.packed import SENTENCES
from envs.command_line import parse_values
from experiments.errors import UserError
from experiments.studies.area_section import area_scores
from experiments.studies.results.results import LESS, Results

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
NUMBER = r"[+−-]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
INTERVAL = rf"\[{NUMBER}, {NUMBER}\]"
# What may stand in a placeholder's place
VALUE = rf"({NUMBER} {INTERVAL}|{NUMBER} to {NUMBER}|{NUMBER}|–|[a-z]+\d*)"
OPTIONS = ("mean", "interval", "letters", "unsigned", "range")
SECOND_HALF = " in second half"
FIT = re.compile(r"(?P<column>\w+) of (?P<metric>\S+) over (?P<axis>\w+)")
SHARES = ("pass@", "distinct", "area")  # metrics that are written as .473; others as 1,234


@dataclass
class Sentence:
    """A sentence with placeholders, and the file of the repository that holds it."""

    file: str
    says: str


@dataclass(frozen=True)
class Fault:
    """A place in a file where something else stands than the results give."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def read_sentences(folder: Path) -> list[Sentence]:
    """Return the sentences of a packed study, [] without a file. Raises UserError."""
    file = folder / SENTENCES
    if not file.is_file():
        return []
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8")) or []
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            raise ValueError("a list of {file: …, says: …} is needed")
        return [parse_values(Sentence, each, f"[{i}]") for i, each in enumerate(values)]
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file}: {' '.join(str(error).split())}") from error


# From a placeholder to its number.


class Numbers:
    """The text of each placeholder, from the results of a study."""

    def __init__(self, results: Results) -> None:
        self.results = results
        arms = {arm: label for arm, label in results.label.items() if label is not None}
        self.labels = results.bases | arms

    def text(self, placeholder: str) -> str:
        """Return what stands in the place of {placeholder}. Raises UserError if it is unknown."""
        name, _, listed = placeholder.partition(":")
        options = [option for option in listed.split(",") if option]
        if unknown := [option for option in options if option not in OPTIONS]:
            raise UserError(f"{{{placeholder}}}: {unknown[0]} is not one of {', '.join(OPTIONS)}")
        if name == "runs" and not options:
            return f"{sum(r['status'] == 'finished' and not r['trial'] for r in self.results.arms)}"
        for dot in (match.start() for match in re.finditer(r"\.", name)):
            subject, metric = name[:dot], name[dot + 1 :]
            if subject in self.labels:
                return self._of_arm(subject, metric, options, placeholder)
            for minus in (match.start() for match in re.finditer("-", subject)):
                a, b = subject[:minus], subject[minus + 1 :]
                if a in self.labels and b in self.labels:
                    return self._of_pair(a, b, metric, options, placeholder)
        raise UserError(
            f"{{{placeholder}}}: write ARM.METRIC or A-B.METRIC; arms: {', '.join(self.labels)}"
        )

    def _of_arm(self, arm: str, metric: str, options: list[str], placeholder: str) -> str:
        label, results = self.labels[arm], self.results
        if metric.endswith(SECOND_HALF):
            return self._of_training(arm, metric.removesuffix(SECOND_HALF), options, placeholder)
        allowed = () if metric == "area" else ("interval", "letters")
        _check_options(options, allowed, placeholder)
        if "letters" in options:
            if (letters := results.letters(arm, metric)) == "–":
                raise UserError(f"{{{placeholder}}}: {arm} has no letters in {metric}")
            return letters
        if metric == "area":
            return share(self._area(arm))
        main, at, axis = metric.partition(" at ")
        if fit := FIT.fullmatch(metric):
            main = fit["metric"]
            ends = self._fitted(arm, fit["column"], main, fit["axis"])
        elif at:
            budgets = results.equal_budget
            rows = budgets[(budgets["axis"] == axis) & (budgets["label"] == label)]
            found = rows[rows["metric"] == main].to_dict("records")
            ends = [float(found[0][end]) for end in ("mean", "low", "high")] if found else []
        else:
            row = {**(results.costs_row(label) or {}), **(results.row(label) or {})}
            names = (metric, f"{metric}_low", f"{metric}_high")
            ends = [float(row.get(name, nan)) for name in names] if metric in row else []
            if of_turns := results.turns.get((label, metric)):
                ends = [float(of_turns[end]) for end in ("mean", "low", "high")]
                return share(ends[0]) + (_interval(ends[1], ends[2]) * ("interval" in options))
        if not ends:
            raise UserError(f"{{{placeholder}}}: {arm} has no {metric}")
        if not main.startswith(SHARES):
            return "–" if isnan(ends[0]) else f"{ends[0]:,.0f}"
        return share(ends[0]) + (_interval(ends[1], ends[2]) if "interval" in options else "")

    def _fitted(self, arm: str, column: str, metric: str, axis: str) -> list[float]:
        """A column of the arm's fit with its interval; [] if there is no fit."""
        row = self.results.fitted(arm, metric, axis) or {}
        ends = [row.get(f"{column}{end}", nan) for end in ("", "_low", "_high")]
        return [] if isnan(ends[0]) else ends

    def _of_training(self, arm: str, column: str, options: list[str], placeholder: str) -> str:
        _check_options(options, ("range",), placeholder)
        if not (means := self.results.in_second_half(arm, column)):
            raise UserError(f"{{{placeholder}}}: {arm} has no {column} in metrics.parquet")
        if "range" in options:
            return f"{share(min(means))} to {share(max(means))}"
        return share(fmean(means))

    def _of_pair(self, a: str, b: str, metric: str, options: list[str], placeholder: str) -> str:
        _check_options(options, ("mean", "unsigned"), placeholder)
        difference = self.results.difference(a, b, metric)
        if difference is None:
            raise UserError(f"{{{placeholder}}}: {a} and {b} have no difference in {metric}")
        digits = 0 if metric in LESS else 3
        mean, low, high = difference
        text = share(mean, digits)
        if round(mean, digits) > 0 and "unsigned" not in options:
            text = f"+{text}"
        return text if "mean" in options or isnan(low) else text + _interval(low, high, digits)

    def _area(self, arm: str) -> float:
        results = self.results
        runs = [run for run in results.arms if run["arm"] == arm]
        known = [x for x in area_scores(results.source.run, runs).values() if not isnan(x)]
        return fmean(known) if known else nan


def _check_options(options: list[str], allowed: tuple[str, ...], placeholder: str) -> None:
    if wrong := [option for option in options if option not in allowed]:
        listed = ", ".join(allowed) or "none"
        raise UserError(f"{{{placeholder}}}: {wrong[0]} cannot stand here; options: {listed}")


def share(value: float, digits: int = 3) -> str:
    """Return .473 for 0.473, −.010 for −0.01, – for NaN."""
    if isnan(value):
        return "–"
    rounded = round(value, digits) + 0.0  # no sign on a zero
    return re.sub(r"^(-?)0\.", r"\1.", f"{rounded:.{digits}f}").replace("-", "−")


def _interval(low: float, high: float, digits: int = 3) -> str:
    return f" [{share(low, digits)}, {share(high, digits)}]"


# From a sentence to its place in a file.

NEAR = 70.0  # of 100: below, a text is too unlike a sentence to be that sentence, changed


class Words:
    """A text with single blanks between words, whose places are known in the original."""

    def __init__(self, text: str) -> None:
        self._original, self._words = text, list(re.finditer(r"\S+", text))
        self.text = " ".join(word.group() for word in self._words)
        self._starts, end = [], 0
        for word in self._words:
            self._starts.append(end)
            end += len(word.group()) + 1

    def place(self, offset: int) -> int:
        """Return the offset in the original."""
        word = bisect_right(self._starts, offset) - 1
        return self._words[word].start() + offset - self._starts[word]

    def line(self, offset: int) -> int:
        """Return the line in the original, from 1."""
        return self._original.count("\n", 0, self.place(offset)) + 1


def pattern(says: str, values: list[str]) -> re.Pattern[str]:
    """Return what finds a sentence with one group for each placeholder's text.

    `values`: regular expressions of the groups. Numbers beside the sentence do not run on into it.
    """
    literals = PLACEHOLDER.split(" ".join(says.split()))  # and the placeholders between them
    text = re.escape(literals[0])
    for value, literal in zip(values, literals[2::2], strict=True):
        text += value + re.escape(literal)
    return re.compile(rf"(?<![\w.,+−-]){text}(?![\w%]|[.,]\d)")


def check_sentence(
    sentence: Sentence, numbers: Numbers, words: Words
) -> tuple[list[Fault], list[tuple[int, int]]]:
    """Return faults of a sentence, or the places of its right numbers in the original text."""
    placeholders = PLACEHOLDER.findall(sentence.says)
    right = [numbers.text(placeholder) for placeholder in placeholders]
    exact = pattern(sentence.says, [f"({re.escape(value)})" for value in right])
    found = {each.start(): each for each in exact.finditer(words.text)}
    similar = pattern(sentence.says, [VALUE] * len(right)).finditer(words.text)
    stale = [each for each in similar if each.start() not in found]
    if not found and not stale:
        values = iter(right)
        filled = PLACEHOLDER.sub(lambda _: next(values), " ".join(sentence.says.split()))
        return [_missing(sentence.file, filled, words)], []
    groups = range(1, len(right) + 1)
    places = [_span(words, each, group) for each in found.values() for group in groups]
    return [
        fault for each in stale for fault in _faults(sentence, placeholders, right, each, words)
    ], places


def _missing(file: str, filled: str, words: Words) -> Fault:
    """A fault at the text that is most like the sentence, if any is like it."""
    says = f'is without the sentence "{filled}"'
    nearest = partial_ratio_alignment(filled, words.text, score_cutoff=NEAR)
    if nearest is None:
        return Fault(file, 1, says)
    start = words.text.rfind(" ", 0, nearest.dest_start + 1) + 1  # whole words
    end = words.text.find(" ", max(start, nearest.dest_end - 1))
    text = words.text[start : end if end >= 0 else None]
    return Fault(file, words.line(start), f'{says}; nearest: "{text}"')


def _faults(
    sentence: Sentence,
    placeholders: list[str],
    right: list[str],
    similar: re.Match[str],
    words: Words,
) -> list[Fault]:
    return [
        Fault(
            sentence.file,
            words.line(similar.start(group)),
            f'"{similar.group()}": {similar.group(group)} stands there; the results give {value}, '
            f"{{{placeholder}}}",
        )
        for group, (placeholder, value) in enumerate(zip(placeholders, right, strict=True), 1)
        if similar.group(group) != value
    ]


def _span(words: Words, match: re.Match[str], group: int) -> tuple[int, int]:
    return words.place(match.start(group)), words.place(match.end(group) - 1) + 1


def uncovered_numbers(
    text: str, start: int, end: int, covered: list[tuple[int, int]]
) -> Iterator[tuple[int, str]]:
    """Yield (line, number) of the text between two offsets that are in no covered place.

    Code, links and numbers within names (pass@1) are no numbers of a result.
    """
    masked = re.sub(r"`[^`]*`|\]\([^)]*\)|\[\^[^\]]*\]", lambda m: "_" * len(m.group()), text)
    for match in re.compile(rf"(?<![\w@.,]){NUMBER}(?![\w@]|[.,]\d)").finditer(masked, start, end):
        if not any(first <= match.start() < last for first, last in covered):
            yield text.count("\n", 0, match.start()) + 1, match.group()
