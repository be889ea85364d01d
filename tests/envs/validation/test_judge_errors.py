"""Error rates of the judge: intervals, sums, and what is kept between commands."""

import pytest

from envs.validation.judge_errors import (
    ProgramCounts,
    keep_counts,
    known_rates,
    total_rates,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("count", "total", "interval"),
    [
        # Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29
        (81, 263, (0.3080, 0.2553, 0.3662)),
        (15, 148, (0.1014, 0.0624, 0.1605)),
        (0, 20, (0.0, 0.0, 0.1611)),
        (1, 29, (0.0345, 0.0061, 0.1718)),
        (5, 5, (1.0, 0.5655, 1.0)),
    ],
)
def test_the_interval_is_wilsons(count, total, interval):
    assert wilson_interval(count, total) == pytest.approx(interval, abs=1e-4)


def test_no_program_is_no_rate():
    rates = total_rates(3, [ProgramCounts(), ProgramCounts(right=2)])
    assert (rates.problems, rates.measured) == (3, 1)
    assert rates.false_rejects == wilson_interval(0, 2) and rates.false_accepts is None


def test_counts_are_kept_by_version_and_more_programs_win():
    keep_counts({"a": ProgramCounts(4, 1, 2, 0), "b": ProgramCounts(1)}, "1-kept")
    keep_counts({"a": ProgramCounts(1, 1), "c": ProgramCounts(0, 0, 3, 3)}, "1-kept")
    assert known_rates(["a"], "1-kept").counts == ProgramCounts(4, 1, 2, 0)
    both = known_rates(["a", "c", "d"], "1-kept")
    assert (both.measured, both.counts) == (2, ProgramCounts(4, 1, 5, 3))
    assert known_rates(["a"], "2-kept").measured == 0
    assert known_rates(["a"], "1-kept").record()["false_rejects"] == wilson_interval(1, 4)


def test_a_damaged_file_is_no_measurement(monkeypatch, tmp_path):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path))
    (tmp_path / "judge_errors").mkdir()
    (tmp_path / "judge_errors" / "1-x.parquet").write_text("no table")
    assert known_rates(["a"], "1-x").measured == 0
