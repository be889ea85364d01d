"""What runtime=ray goes with, before anything heavy starts."""

import importlib.util
from types import SimpleNamespace

import pytest

from experiments.config.composition import config_of as composed
from experiments.errors import UserError
from tests.experiments.compose import config as config_of


@pytest.fixture
def found(monkeypatch):
    """Whether Ray is installed, as far as a run can see."""

    def is_installed(ray):
        known = importlib.util.find_spec
        spec = SimpleNamespace() if ray else None
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *of: spec if name == "ray" else known(name, *of),
        )

    return is_installed


def test_without_ray_one_line_says_how_to_get_it(found):
    found(False)
    with pytest.raises(UserError, match=r"runtime=ray: .*pip install -e '\.\[ray\]'"):
        config_of("runtime=ray")


def test_keys_of_ray_are_refused_where_they_would_do_nothing(found):
    found(True)
    given = ["runtime.engines=2", "runtime.judges=3", "runtime.address=auto"]
    for key in given:
        with pytest.raises(UserError, match=key.partition("=")[0]):
            composed([key])
    runtime = composed(["runtime=ray", *given]).runtime
    assert (runtime.engines, runtime.judges, runtime.address) == (2, 3, "auto")


def test_an_engine_in_an_actor_has_the_gpu_that_ray_gives_it(found):
    found(True)
    with pytest.raises(UserError, match=r"engine.device=cuda:1: .*use engine.device=auto"):
        config_of("runtime=ray", "engine=auto", "engine.device=cuda:1", "engine.colocate=false")
    assert config_of("runtime=ray", "engine=auto").engine.name == "auto"
