"""The example algorithm of docs/guide/algorithms.md, compared with RLOO."""

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
    example = ModuleType("algorithms.leave_one_out")
    monkeypatch.setitem(sys.modules, example.__name__, example)
    exec(block("python"), vars(example))
    return example


def test_an_option_that_it_lacks_is_not_recommended(module):
    overrides = [f"algo.core={module.__name__}.LeaveOneOut", "train.lag=1"]
    with pytest.raises(UserError, match=r"the lag is up to 1; lower it$"):
        config_of(["algo=sft", *overrides])
    with pytest.raises(UserError, match=r"lower it, or allow more with algo.max_lag=1$"):
        config_of(["algo=rloo", "train.lag=1"])


def test_the_example_is_rloo(module):
    options = OmegaConf.create(block("yaml"))
    name, core = options.pop("name"), options.core.rpartition(".")
    assert (name, core[0]) == ("leave_one_out", module.__name__)
    example = getattr(module, core[2])
    ours = example(example.Config(name=name, **options), 1.0)
    keep = torch.arange(12) % 5 != 3
    case = {"keep": keep, "cut": 3, "layout": (1, 2, "left")}
    expected = gradient(algorithms.make("rloo"), *raw(50), **case)
    for one, other in zip(gradient(ours, *raw(50), **case), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert ours.needs.max_lag == algorithms.make("rloo").needs.max_lag
