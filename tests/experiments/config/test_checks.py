"""Combinations that would give a wrong or unfair number are refused with their keys."""

from pathlib import Path

import pytest
import yaml

from experiments.config.composition import config_of
from experiments.errors import UserError

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))


@pytest.mark.parametrize("given", REFUSED)
def test_it_is_refused_in_one_line(given):
    with pytest.raises(UserError) as refused:
        config_of(given.split())
    line = str(refused.value)
    assert "\n" not in line and REFUSED[given] in line, line
    keys = [word.partition("=")[0].rpartition(".")[2] for word in given.split()]
    assert any(key in line for key in keys), line
