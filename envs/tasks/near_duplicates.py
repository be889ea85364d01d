"""Near-duplicate statements of two splits: data sets often share problems.

Statements are compared by their word 5-grams: by the Jaccard similarity of two sets, which finds
rewordings, and by the share of the smaller set that the larger one contains, which finds a
statement inside a longer one. The search is exact. Two statements can only be duplicates if they
share one of the rarest 5-grams of the shorter one (the prefix filter of Chaudhuri et al. 2006), so
few pairs are compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

SIMILARITY = 0.5  # Jaccard similarity of word 5-grams from which two statements are duplicates
CONTAINMENT = 0.7  # share of the smaller set's 5-grams in the larger one, likewise
MIN_CONTAINED = 16  # 5-grams of a statement that counts as contained: 20 words
_GRAM_WORDS = 5
# A Jaccard similarity of at least SIMILARITY implies this share of the smaller set.
_LEAST_SHARED = min(SIMILARITY, CONTAINMENT)
_SAMPLES = re.compile(  # where the prose ends and the examples begin, in the usual layouts
    r"\n\W*(?:sample )?(?:examples?|inputs?|sample inputs?)\W*\d*\W*\n(?=\W*\S+.*\d)", re.IGNORECASE
)

Grams = frozenset[str]


class Statement(Protocol):
    """A problem's name and statement."""

    @property
    def name(self) -> str: ...
    @property
    def statement(self) -> str: ...


def similar_pairs(train: Iterable[Statement], test: Sequence[Statement]) -> list[dict[str, object]]:
    """Return {train, test, similarity, containment} of every near-duplicate pair.

    The most similar come first.
    """
    index = _Index([shingles(problem.statement) for problem in test])
    pairs: list[tuple[float, float, str, str]] = []
    for problem in train:
        grams = shingles(problem.statement)
        for number in index.candidates(grams):
            other = index.statements[number]
            if is_duplicate(grams, other):
                similarity, contained = jaccard(grams, other), containment(grams, other)
                names = (problem.name, test[number].name)
                pairs.append((round(similarity, 3), round(contained, 3), *names))
    pairs.sort(key=lambda pair: (-pair[0], -pair[1], *pair[2:]))
    keys = ("similarity", "containment", "train", "test")
    return [dict(zip(keys, pair, strict=True)) for pair in pairs]


def is_duplicate(one: Grams, other: Grams) -> bool:
    """Return whether two statements are near-duplicates, from their 5-grams."""
    if not one or not other:
        return False
    if jaccard(one, other) >= SIMILARITY:
        return True
    return min(len(one), len(other)) >= MIN_CONTAINED and containment(one, other) >= CONTAINMENT


def jaccard(one: Grams, other: Grams) -> float:
    """Return the share of all 5-grams that both have."""
    return len(one & other) / len(one | other)


def containment(one: Grams, other: Grams) -> float:
    """Return the share of the smaller set that both have."""
    return len(one & other) / min(len(one), len(other))


def shingles(statement: str) -> Grams:
    """Return the word 5-grams of a statement's prose, in lower case; a shorter text is one gram."""
    prose = _SAMPLES.split(statement, maxsplit=1)[0]
    words = re.findall(r"\w+", prose.lower()) or re.findall(r"\w+", statement.lower())
    last = max(1, len(words) - _GRAM_WORDS + 1)
    if not words:
        return frozenset()
    return frozenset(" ".join(words[i : i + _GRAM_WORDS]) for i in range(last))


class _Index:
    """Finds the statements of one split that may be duplicates of another statement.

    If two sets share at least t grams, and n is the size of the smaller, every n − t + 1 grams of
    the smaller contain a shared one. The rarest are taken, which few other statements have.
    """

    def __init__(self, statements: Sequence[Grams]) -> None:
        self.statements = statements
        self.frequency = Counter(gram for grams in statements for gram in grams)
        self.by_gram: dict[str, list[int]] = defaultdict(list)
        self.by_rare_gram: dict[str, list[int]] = defaultdict(list)
        for number, grams in enumerate(statements):
            for gram in grams:
                self.by_gram[gram].append(number)
            for gram in self._rarest(grams):
                self.by_rare_gram[gram].append(number)

    def candidates(self, grams: Grams) -> list[int]:
        """Return the numbers of the statements that may be duplicates, in order."""
        known = [gram for gram in grams if gram in self.by_gram]
        if not known:
            return []
        shorter = _numbers(self.by_rare_gram, known)  # statements shorter than this one
        longer = _numbers(self.by_gram, self._rarest(grams))
        return sorted(shorter | longer)

    def _rarest(self, grams: Iterable[str]) -> list[str]:
        ordered = sorted(grams, key=lambda gram: (self.frequency[gram], gram))
        return ordered[: len(ordered) - math.ceil(len(ordered) * _LEAST_SHARED) + 1]


def _numbers(postings: dict[str, list[int]], grams: Iterable[str]) -> set[int]:
    return {number for gram in grams if gram in postings for number in postings[gram]}
