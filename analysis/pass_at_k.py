"""pass@k: an unbiased estimate of the probability that at least one of k samples is right.

Drawing k of the n samples once would be noisy, and 1 - (1 - c/n)^k is biased. The closed form
below averages over all choices of k samples.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

KS = (1, 5, 10)  # the default
DENSE = 20  # tries up to which a curve has every k


def curve_ks(most: int) -> list[int]:
    """Return the k of a curve of pass@k up to `most`: above DENSE, four for each doubling."""
    sparse = {round(2 ** (i / 4)) for i in range(4 * most.bit_length())} | {most}
    return [k for k in range(1, most + 1) if k <= DENSE or k in sparse]


@lru_cache(maxsize=1 << 16)
def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k, in [0, 1], from n samples with c accepted.

    1 - C(n - c, k) / C(n, k), Chen et al. 2021 (2107.03374), eq. 1. The binomials are exact
    integers and the one division is correctly rounded, so no precision is lost at large n or small
    c.

    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} cannot be estimated from n={n} samples with c={c} accepted")
    choices = comb(n, k)
    return (choices - comb(n - c, k)) / choices
