"""How different the programs are that a model writes for one problem.

The functions take the programs of one problem; `analysis.metrics.scores` asks them problem by problem.
"Form" is the normal form of `analysis.metrics.normal_form`: two programs are distinct if theirs differ.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from sys import intern

from rapidfuzz.distance import Levenshtein

from analysis.pass_at_k import pass_at_k

SHORT = 1024  # characters; tokens of longer programs are not kept
_TOKEN = re.compile(
    r"""\s++ | \#[^\n]*
      | ("(?:\\.|[^"\\\n]++)*+"? | '(?:\\.|[^'\\\n]++)*+'?
      | \d[\w.]* | \w+
      | \*\*=? | //=? | <<=? | >>=? | [-+*/%&|^=<>!:]= | -> | [^\w\s])""",
    re.VERBOSE,
)


def program_tokens(program: str) -> tuple[str, ...]:
    """Names, numbers, strings and operators, without layout and comments; never fails.

    A string that is not closed is one token up to its line's end: were it given up, each of its
    quotes would be tried anew, and a long line of \\" take quadratic time.
    """
    return _known(program) if len(program) <= SHORT else _tokens(program)


def _tokens(program: str) -> tuple[str, ...]:
    # Of blanks and comments the group is empty. A token is held once, whoever has it.
    return tuple(map(intern, filter(None, _TOKEN.findall(program))))


_known = lru_cache(maxsize=1 << 17)(_tokens)  # a kilobyte or two each


def distinct_ratio(forms: Sequence[str]) -> float:
    """Distinct forms / forms, for at least one accepted program.

    Easy to read and biased: it falls as more samples are accepted even if the model's distribution
    over right programs stays the same, because the same program can come up more often. Between
    models with different pass@1, compare `distinct_share`.
    """
    return len(set(forms)) / len(forms)


def distinct_share(forms: Sequence[str], m: int) -> float:
    """Expected distinct forms among m accepted programs drawn without replacement, over m.

    Rarefaction (Hurlbert 1971): E[distinct] = Σ_j 1 - C(c - c_j, m)/C(c, m) for c accepted programs
    of which c_j have form j. Its expectation does not depend on c, so models that solve the problem
    more or less often can be compared. In [1/m, 1]. Raises ValueError for fewer than m programs.
    """
    counts = Counter(forms).values()
    return sum(pass_at_k(len(forms), count, m) for count in counts) / m


def distinct_n(programs: Sequence[str], n: int) -> float | None:
    """Distinct n-grams of program tokens / all of them, over all samples of a problem.

    Li et al. 2016 (1510.03055), §5.2, there for dialogue. Right and wrong programs count, names as
    written. It falls with the number of samples and their length: compare at equal counts. None
    where no program is n tokens long.
    """
    grams: set[tuple[str, ...]] = set()
    total = 0
    for program, count in Counter(programs).items():
        tokens = program_tokens(program)
        grams.update(zip(*(tokens[i:] for i in range(n)), strict=False))
        total += count * max(0, len(tokens) - n + 1)
    return len(grams) / total if total else None


def mean_edit_distance(forms: Sequence[str], *, max_pairs: int = 60, seed: int = 0) -> float:
    """Mean over all pairs of accepted programs of the normalised token edit distance, in [0, 1].

    Levenshtein distance between the tokens of the two forms / the longer one's length; 0 for equal
    forms. Over pairs, so its expectation does not depend on how many were accepted. Where the
    distinct forms make more than `max_pairs` pairs, the mean over unequal pairs is estimated from
    that many, drawn with `seed`. Needs at least two programs.
    """
    counts = Counter(forms)
    pairs = list(combinations(sorted(counts), 2))
    if not pairs:
        return 0.0
    weights = [counts[a] * counts[b] for a, b in pairs]
    share_unequal = sum(weights) / (len(forms) * (len(forms) - 1) / 2)
    if len(pairs) > max_pairs:
        pairs = random.Random(seed).choices(pairs, weights, k=max_pairs)
        weights = [1] * max_pairs
    tokens = {form: program_tokens(form) for form in counts}
    total = 0.0
    for (a, b), weight in zip(pairs, weights, strict=True):
        total += weight * Levenshtein.normalized_distance(tokens[a], tokens[b])
    return share_unequal * total / sum(weights)
