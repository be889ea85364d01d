"""What is said of keys of Hydra's own, and while many items are looked at."""

from types import SimpleNamespace

import pytest

from experiments.config import composition
from experiments.config.composition import config_of, counted
from experiments.errors import UserError


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


def test_a_value_of_another_type_for_a_launchers_key_is_said_as_that():
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    with pytest.raises(
        UserError, match=r"n_jobs=a: Value 'a' of type 'str' could not be converted"
    ):
        config_of(["hydra/launcher=joblib", "hydra.launcher.n_jobs=a"])
