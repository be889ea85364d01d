"""Statements that stand in two splits: the same problem is often told in more than one data set.

Near-duplicates are found by MinHash over word 5-grams (Broder 1997; the library is datasketch),
then confirmed by the exact Jaccard similarity of the 5-grams, so that the sketch decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

SIMILARITY = 0.5  # Jaccard similarity of word 5-grams from which two statements count as one
_WORDS = 5
_SKETCH_SIMILARITY = 0.3  # candidates are taken well below the threshold, then compared exactly
_PERMUTATIONS = 128
_SAMPLES = re.compile(  # where the words end and the examples begin, in the usual layouts
    r"\n\W*(?:sample )?(?:examples?|inputs?|sample inputs?)\W*\d*\W*\n(?=\W*\S+.*\d)", re.IGNORECASE
)


class Told(Protocol):
    """What has a name and a statement."""

    name: str
    statement: str


def similar_pairs(
    train: Sequence[Told], test: Sequence[Told], progress: Callable[[int], None] | None = None
) -> list[dict[str, object]]:
    """{train, test, similarity} for every pair of problems that tell the same, best first.

    `progress` is told how many of `train` have been compared.
    """
    from datasketch import MinHashLSH

    index = MinHashLSH(threshold=_SKETCH_SIMILARITY, num_perm=_PERMUTATIONS)
    grams = [shingles(problem.statement) for problem in test]
    for number, found in enumerate(grams):
        if found:
            index.insert(number, _sketch(found))
    pairs = []
    for count, problem in enumerate(train, 1):
        own = shingles(problem.statement)
        for number in index.query(_sketch(own)) if own else ():
            similarity = len(own & grams[number]) / len(own | grams[number])
            if similarity >= SIMILARITY:
                other = test[number].name
                pairs.append(
                    {"train": problem.name, "test": other, "similarity": round(similarity, 3)}
                )
        if progress:
            progress(count)
    return sorted(pairs, key=lambda pair: (-pair["similarity"], pair["train"], pair["test"]))


def shingles(statement: str) -> frozenset[str]:
    """The word 5-grams of a statement's prose, lower case; a shorter text is one gram."""
    prose = _SAMPLES.split(statement, maxsplit=1)[0]
    words = re.findall(r"\w+", prose.lower()) or re.findall(r"\w+", statement.lower())
    last = max(1, len(words) - _WORDS + 1)
    return frozenset(" ".join(words[i : i + _WORDS]) for i in range(last)) if words else frozenset()


def _sketch(grams: frozenset[str]) -> object:
    from datasketch import MinHash

    sketch = MinHash(num_perm=_PERMUTATIONS, seed=1)
    sketch.update_batch([gram.encode() for gram in sorted(grams)])
    return sketch
