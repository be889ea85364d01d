"""Checks of runtime=ray before anything heavy starts."""

import importlib.util
from types import SimpleNamespace

import pytest

from experiments.config.composition import config_of as composed
from experiments.config.preflight import check_before_start
from experiments.errors import UserError
from tests.experiments.compose import config as config_of


@pytest.fixture
def ray_installed(monkeypatch):
    """Set whether Ray seems to be installed."""

    def is_installed(ray):
        original = importlib.util.find_spec
        spec = SimpleNamespace() if ray else None
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *of: spec if name == "ray" else original(name, *of),
        )

    return is_installed


def test_without_ray_one_line_says_how_to_get_it(ray_installed):
    ray_installed(False)
    with pytest.raises(UserError, match=r"runtime=ray: .*pip install -e '\.\[ray\]'"):
        check_before_start([config_of("runtime=ray")])


def test_keys_of_ray_are_read_under_ray(ray_installed):
    ray_installed(True)
    given = ["runtime.engines=2", "runtime.judges=3", "runtime.address=auto"]
    runtime = composed(["runtime=ray", *given]).runtime
    assert (runtime.engines, runtime.judges, runtime.address) == (2, 3, "auto")


def test_an_engine_in_an_actor_has_the_gpu_that_ray_gives_it(ray_installed):
    ray_installed(True)
    with pytest.raises(UserError, match=r"engine.device=cuda:1 with .*use engine.device=auto"):
        config_of("runtime=ray", "engine=auto", "engine.device=cuda:1", "engine.colocate=false")
    assert config_of("runtime=ray", "engine=auto").engine.name == "auto"
