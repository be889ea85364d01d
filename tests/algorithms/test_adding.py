"""The algorithm that docs/algorithms.md adds, held to RLOO."""

import re
from pathlib import Path

import torch
from omegaconf import OmegaConf

import algorithms
from tests.algorithms.batches import gradient, raw

PAGE = Path(algorithms.CONF).parents[1] / "docs" / "algorithms.md"


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S).group(1)


def test_the_pages_example_is_rloo(monkeypatch):
    module = type(algorithms)("algorithms.leave_one_out")
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)  # dataclass asks for it
    exec(block("python"), vars(module))
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
