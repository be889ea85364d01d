"""What is said while many items are looked at."""

from types import SimpleNamespace

from experiments.config import composition
from experiments.config.composition import counted


def test_items_that_take_long_are_counted_and_others_are_not(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(composition, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def said(numbers, seconds):
        for _ in counted(numbers, "checking"):
            now[0] += seconds
        return capsys.readouterr().err.splitlines()

    assert said(range(9), 0.1) == []
    assert said(range(5), 2.0) == ["checking: 2 of 5 …", "checking: 4 of 5 …"]
    assert said(range(2), 9.0) == []
