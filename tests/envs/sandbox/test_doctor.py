"""What the machine offers, and the backend that follows from it."""

import pytest

from envs.sandbox import doctor


@pytest.mark.parametrize(
    ("here", "taken"),
    [
        (("docker", "namespaces"), "docker: containers"),
        (("namespaces", "landlock"), "namespaces: namespaces"),
        (("landlock",), "landlock: the weaker form"),
        ((), "nothing: nothing here"),
    ],
)
def test_auto_takes_the_strongest_that_holds(here, taken, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "lack", lambda name: None if name in here else "a reason")
    monkeypatch.setattr("sys.argv", ["doctor"])
    with pytest.raises(SystemExit) as ended:
        doctor.main()
    shown = capsys.readouterr().out
    assert (bool(ended.value.code), f"sandbox=auto takes {taken}" in shown) == (not here, True)
    assert shown.count("no: a reason; ") == 3 - len(here)


def test_an_engine_that_is_not_there_is_a_lack(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert "no Docker engine answers at unix:///nowhere" in doctor.lack("docker")
