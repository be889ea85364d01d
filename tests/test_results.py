"""The numbers of the pages are those of the results in the repository (`make check-results`)."""

from pathlib import Path

from experiments.studies.check import main

ROOT = Path(__file__).resolve().parents[1]


def test_the_pages_hold_the_numbers_of_their_results(capsys):
    status = main([f"root={ROOT}"])
    told = capsys.readouterr()
    assert status == 0, told.out + told.err
    assert "docs/results/study-mini.md: " in told.out
