"""Near-duplicate statements of two splits: data sets often share problems.

Candidates come from MinHash over word 5-grams (Broder 1997, library datasketch). The exact Jaccard
similarity of the 5-grams then decides, so the sketch decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datasketch import MinHash

SIMILARITY = 0.5  # Jaccard similarity of word 5-grams from which two statements are duplicates
_GRAM_WORDS = 5
_SKETCH_SIMILARITY = 0.3  # of candidates: well below the threshold
_PERMUTATIONS = 128
_SAMPLES = re.compile(  # where the prose ends and the examples begin, in the usual layouts
    r"\n\W*(?:sample )?(?:examples?|inputs?|sample inputs?)\W*\d*\W*\n(?=\W*\S+.*\d)", re.IGNORECASE
)


class Statement(Protocol):
    """A problem's name and statement."""

    @property
    def name(self) -> str: ...
    @property
    def statement(self) -> str: ...


def similar_pairs(
    train: Sequence[Statement],
    test: Sequence[Statement],
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, object]]:
    """Return {train, test, similarity} of every near-duplicate pair, most similar first.

    `progress` gets the number of train problems compared so far.
    """
    from datasketch import MinHashLSH

    index = MinHashLSH(threshold=_SKETCH_SIMILARITY, num_perm=_PERMUTATIONS)
    test_grams = [shingles(problem.statement) for problem in test]
    for number, grams in enumerate(test_grams):
        if grams:
            index.insert(number, _sketch(grams))
    pairs: list[tuple[float, str, str]] = []
    for count, problem in enumerate(train, 1):
        grams = shingles(problem.statement)
        for number in index.query(_sketch(grams)) if grams else ():
            similarity = len(grams & test_grams[number]) / len(grams | test_grams[number])
            if similarity >= SIMILARITY:
                pairs.append((round(similarity, 3), problem.name, test[number].name))
        if progress:
            progress(count)
    pairs.sort(key=lambda pair: (-pair[0], *pair[1:]))
    return [
        {"train": train_name, "test": test_name, "similarity": similarity}
        for similarity, train_name, test_name in pairs
    ]


def shingles(statement: str) -> frozenset[str]:
    """Return the word 5-grams of a statement's prose, in lower case; a shorter text is one gram."""
    prose = _SAMPLES.split(statement, maxsplit=1)[0]
    words = re.findall(r"\w+", prose.lower()) or re.findall(r"\w+", statement.lower())
    last = max(1, len(words) - _GRAM_WORDS + 1)
    if not words:
        return frozenset()
    return frozenset(" ".join(words[i : i + _GRAM_WORDS]) for i in range(last))


def _sketch(grams: frozenset[str]) -> MinHash:
    from datasketch import MinHash

    sketch = MinHash(num_perm=_PERMUTATIONS, seed=1)
    sketch.update_batch([gram.encode() for gram in sorted(grams)])
    return sketch
