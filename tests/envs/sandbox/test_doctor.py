"""What the machine offers, and the backend that follows from it."""

import platform

import pytest

from envs.sandbox.doctor import Check, auto_backend, main, run_checks


@pytest.mark.parametrize(
    ("passed", "backend", "word"),
    [
        (("Docker engine", "image", "namespaces"), "docker", "containers"),
        (("Docker engine", "namespaces", "landlock"), "embedded", "namespaces"),
        (("landlock",), "embedded", "weaker"),
        ((), "", "does not start"),
    ],
)
def test_auto_takes_the_strongest_that_holds(passed, backend, word):
    names = ("Docker engine", "image", "namespaces", "landlock")
    taken, strength = auto_backend([Check(name, name in passed, "") for name in names])
    assert (taken, word in strength) == (backend, True)


def test_every_lack_has_a_remedy(monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    by_name = {check.name: check for check in run_checks()}
    assert ".ci/engine start" in by_name["Docker engine"].remedy
    assert platform.release() in by_name["machine"].detail
    assert all(check.passed or check.remedy for check in by_name.values())


@pytest.mark.docker
def test_sees_the_engine_and_the_image(engine, monkeypatch, capsys):
    by_name = {check.name: check for check in run_checks()}
    assert engine.version()["Version"] in by_name["Docker engine"].detail
    assert by_name["image"].passed
    monkeypatch.setattr("sys.argv", ["doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, "sandbox=auto takes docker" in capsys.readouterr().out) == (0, True)
