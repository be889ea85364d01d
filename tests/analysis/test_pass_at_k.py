from itertools import combinations

import pytest

from analysis.pass_at_k import pass_at_k


@pytest.mark.parametrize("n", range(1, 8))
def test_equals_enumeration_of_all_choices(n):
    for c in range(n + 1):
        right = [i < c for i in range(n)]
        for k in range(1, n + 1):
            hits = [any(chosen) for chosen in combinations(right, k)]
            assert pass_at_k(n, c, k) == pytest.approx(sum(hits) / len(hits), abs=1e-15)


def test_exact_at_sizes_where_binomials_overflow_floats():
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert pass_at_k(100_000, 1, 1) == 1e-5


@pytest.mark.parametrize(
    ("n", "c", "k"), [(5, 2, 6), (5, 6, 1), (-1, 0, 1), (5, -1, 1), (5, 2, 0), (0, 0, 1)]
)
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k} cannot be estimated from n={n} .* c={c}"):
        pass_at_k(n, c, k)
