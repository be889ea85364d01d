"""The algorithm that docs/guide/algorithms.md adds, held to RLOO."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from omegaconf import OmegaConf

import algorithms
from experiments.config.composition import config_of
from experiments.errors import UserError
from tests.algorithms.batches import gradient, raw

PAGE = Path(algorithms.CONF).parents[1] / "docs" / "guide" / "algorithms.md"


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S).group(1)


@pytest.fixture
def module(monkeypatch):
    made = ModuleType("algorithms.leave_one_out")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(block("python"), vars(made))
    return made


def test_what_it_does_not_offer_is_not_recommended(module):
    given = [f"algo.core={module.__name__}.LeaveOneOut", "train.lag=1"]
    with pytest.raises(UserError, match=r"here it is up to 1; lower it$"):
        config_of(["algo=sft", *given])
    with pytest.raises(UserError, match=r"lower it, or allow more with algo.max_lag=1$"):
        config_of(["algo=rloo", "train.lag=1"])


def test_the_pages_example_is_rloo(module):
    given = OmegaConf.create(block("yaml"))
    name, core = given.pop("name"), given.core.rpartition(".")
    assert (name, core[0]) == ("leave_one_out", module.__name__)
    made = getattr(module, core[2])
    ours = made(made.Config(name=name, **given), 1.0)
    keep = torch.arange(12) % 5 != 3
    case = {"keep": keep, "cut": 3, "layout": (1, 2, "left")}
    expected = gradient(algorithms.make("rloo"), *raw(50), **case)
    for one, other in zip(gradient(ours, *raw(50), **case), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert ours.needs.max_lag == algorithms.make("rloo").needs.max_lag
