"""pass@k: the chance that at least one of k samples of a problem is right, without bias.

Estimating it by drawing k of the n samples once is noisy, and 1 - (1 - c/n)^k is biased; the
closed form below averages over all choices of k samples.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

KS = (1, 5, 10)  # where nobody asks for others


@lru_cache(maxsize=1 << 16)
def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of pass@k from n samples, c of them accepted (a number in [0, 1]).

    1 - C(n - c, k) / C(n, k), Chen et al. 2021 (2107.03374), eq. 1. The binomials are exact
    integers and the one division is correctly rounded, so nothing is lost at large n or small c.

    Raises ValueError where 0 <= c <= n and 1 <= k <= n do not hold.
    """
    if n < 0 or c < 0:
        raise ValueError(f"pass@k needs counts of at least 0, got n={n}, c={c}")
    if k < 1:
        raise ValueError(f"pass@k needs k of at least 1, got k={k}")
    if c > n:
        raise ValueError(f"pass@k: more accepted than samples, c={c} > n={n}")
    if k > n:
        raise ValueError(f"pass@{k} cannot be estimated from n={n} samples: draw at least {k}")
    chosen = comb(n, k)
    return (chosen - comb(n - c, k)) / chosen
