"""Check the pages of studies against their results in the repository (`make check-results`).

    python -m experiments.studies.check [root=.] [verbose=true]

Every page docs/results/study-NAME.md with a packed study beside it is written again from the counts
and compared, except for its discussion. So is the leaderboard. The numbers of the sentences in the
packed study's sentences.yaml (experiments/studies/results/sentences.py) are recomputed. The exit
status is 1 if something else stands in a file than the results give. Figures are not compared.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from analysis.packed import SENTENCES, changed_files, study_file
from analysis.runs import RunError, is_packed
from envs.command_line import parse_arguments, quiet_when_unread
from experiments.errors import UserError
from experiments.studies.leaderboard import LEADERBOARD, leaderboard
from experiments.studies.results.results import Results
from experiments.studies.results.sentences import (
    Fault,
    Numbers,
    Words,
    check_sentence,
    read_sentences,
    uncovered_numbers,
)
from experiments.studies.study import Study, read
from experiments.studies.write import PROSE, discussion_of, page_at

PAGES = "docs/results"


@dataclass
class Options:
    """The command line."""

    root: Path = Path(".")  # the repository
    verbose: bool = False  # list the numbers of discussions that no sentence covers


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    try:
        options = parse_arguments(Options, arguments)
        faults = check_results(options.root, options.verbose)
    except (UserError, RunError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for fault in faults:
        print(fault)
    print(f"faults: {len(faults)}")
    return 1 if faults else 0


def check_results(root: Path, verbose: bool) -> list[Fault]:
    """Check all pages of studies and print what was checked; return the faults.

    Raises UserError if there is no page, or sentences.yaml has a mistake.
    """
    faults: list[Fault] = []
    load = cache(Results)  # scoring a study takes seconds
    folders = [file.parent for file in sorted((root / PAGES).glob("*/*")) if is_packed(file.parent)]
    pages = {*(root / PAGES).glob("study-*.md"), *(folder.with_suffix(".md") for folder in folders)}
    if not pages:
        raise UserError(f"root={root}: no {PAGES}/study-*.md; give the folder of the repository")
    for page in sorted(pages):
        name, folder = page.relative_to(root).as_posix(), page.with_suffix("")
        if not is_packed(folder):
            print(f"{name}: cannot be checked: no results in the repository")
        elif not page.is_file():
            faults.append(Fault(name, 1, f"is missing; write it from {folder.relative_to(root)}"))
        else:
            faults += _check_study(root, page, folder, load, verbose)
    if folders and not any(map(changed_files, set(folders))):
        faults += _leaderboard_faults(root, load)
    return faults


def _leaderboard_faults(root: Path, load: Callable[[Path], Results]) -> list[Fault]:
    """Where the leaderboard differs from the counts."""
    page = root / LEADERBOARD
    if not page.is_file():
        how = "python -m experiments.studies.leaderboard"
        return [Fault(LEADERBOARD, 1, f"is missing; write it: `{how}`")]
    print(f"{LEADERBOARD}: written again from all studies")
    return list(page_faults(LEADERBOARD, page.read_text(), leaderboard(root, load)))


def _check_study(
    root: Path, page: Path, folder: Path, load: Callable[[Path], Results], verbose: bool
) -> list[Fault]:
    name = page.relative_to(root).as_posix()
    if changed := changed_files(folder):
        of = folder.relative_to(root).as_posix()
        return [
            Fault(f"{of}/{file}", 1, "is not the file of SHA256SUMS; pack the study again")
            for file in changed
        ]
    results = load(folder)
    faults = list(page_faults(name, page.read_text(), page_at(page, read_study(folder), results)))
    covered: dict[str, list[tuple[int, int]]] = {}
    numbers, words = Numbers(results), dict[str, Words]()
    sentences = read_sentences(folder)
    for sentence in sentences:
        if sentence.file not in words:
            words[sentence.file] = Words(_read(root, sentence.file, folder))
        wrong, places = check_sentence(sentence, numbers, words[sentence.file])
        faults += wrong
        covered.setdefault(sentence.file, []).extend(places)
    discussion, start = discussion_of(page)
    end, text = start + len(discussion), page.read_text()
    others = list(uncovered_numbers(text, start, end, covered.get(name, [])))
    checked = sum(map(len, covered.values()))
    print(
        f"{name}: written again from {folder.name}/; {len(sentences)} sentences with {checked} "
        f"right numbers; {len(others)} numbers of the discussion in no placeholder of a sentence"
        + ("" if verbose or not others else " (verbose=true lists them)")
    )
    lines = text.splitlines()
    for line, number in others if verbose else []:
        print(f"{name}:{line}: {number} in: {lines[line - 1].strip()[:80]}")
    return faults


def read_study(folder: Path) -> Study:
    """Return the study of a packed study."""
    return read(str(study_file(folder)))


def _read(root: Path, file: str, folder: Path) -> str:
    try:
        return (root / file).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder / SENTENCES}: file: {file}: {error.strerror}") from error


def page_faults(name: str, has: str, right: str) -> Iterator[Fault]:
    """Yield where a page differs from the right one; the widths of a table's columns may differ."""
    old, new = _lines(has), _lines(right)
    matcher = SequenceMatcher(None, [text for _, text in old], [text for _, text in new], False)
    for kind, first, end, right_first, right_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        there, expected = old[first:end], [text for _, text in new[right_first:right_end]]
        if len(there) == len(expected):
            for (number, text), better in zip(there, expected, strict=True):
                yield from _line_faults(name, number, text, better)
        else:
            number = old[min(first, len(old) - 1)][0]
            texts = " / ".join(text for _, text in there), " / ".join(expected)
            yield Fault(name, number, f'"{texts[0]}" stands there; the results give "{texts[1]}"')


def _line_faults(name: str, number: int, text: str, better: str) -> Iterator[Fault]:
    """Yield the cells of a table's row that differ, or the whole line."""
    cells, right = ([c.strip() for c in line.split("|")] for line in (text, better))
    if len(cells) == len(right) > 2 and cells[1] == right[1]:
        for cell, value in zip(cells, right, strict=True):
            if cell != value:
                yield Fault(
                    name, number, f"{cells[1]}: {cell} stands there; the results give {value}"
                )
    elif text != better:
        yield Fault(name, number, f'"{text}" stands there; the results give "{better}"')


def _lines(page: str) -> list[tuple[int, str]]:
    """Return (number, text) of the lines without layout, blank lines and the discussion."""
    lines: list[tuple[int, str]] = []
    inside = False
    for number, line in enumerate(page.splitlines(), 1):
        if inside := inside and line != PROSE[1]:
            continue
        lines.append((number, re.sub(r"-{2,}", "--", " ".join(line.split()))))
        inside = line == PROSE[0]
    return [each for each in lines if each[1]]


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
