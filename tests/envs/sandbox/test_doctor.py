"""The doctor: what it finds holds, and what it concludes follows from what it finds."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from envs.sandbox import doctor
from envs.sandbox.doctor import Finding, auto, examine

ROOT = Path(__file__).parents[3]


def findings(*good: str) -> list[Finding]:
    names = ("Docker engine", "image", "user namespaces", "Landlock", "seccomp")
    return [Finding(name, name in good, "") for name in names]


@pytest.mark.parametrize(
    ("good", "backend", "word"),
    [
        (("Docker engine", "image", "user namespaces", "seccomp"), "docker", "containers"),
        (("Docker engine", "user namespaces", "seccomp"), "embedded", "namespaces"),
        (("user namespaces", "Landlock", "seccomp"), "embedded", "namespaces"),
        (("Landlock", "seccomp"), "embedded", "weaker"),
        (("user namespaces", "Landlock"), "", "does not start"),
        ((), "", "does not start"),
    ],
)
def test_auto_takes_the_strongest_that_holds(good, backend, word):
    taken, strength = auto(findings(*good))
    assert taken == backend
    assert word in strength


def test_every_lack_has_a_remedy(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    found = {finding.name: finding for finding in examine()}
    assert not found["Docker engine"].good
    assert ".ci/engine start" in found["Docker engine"].remedy
    assert platform.release() in found["machine"].found
    assert all(finding.good or finding.remedy for finding in found.values())


def test_refused_namespaces_are_found_with_the_reason(monkeypatch):
    # Flags that do not exist get a real refusal from the kernel, on every machine.
    monkeypatch.setattr(doctor, "UNSHARE", doctor.UNSHARE.replace(str(doctor.NAMESPACES), "-1"))
    finding = doctor.user_namespaces()
    assert not finding.good
    assert finding.found == "Invalid argument"
    assert finding.remedy


def test_prints_a_table_and_the_backend():
    command = [sys.executable, "-m", "envs.sandbox.doctor"]
    shown = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    expected, _ = auto(examine())
    assert f"sandbox=auto takes {expected or 'nothing'}" in shown.stdout
    assert shown.returncode == (0 if expected else 1)
    assert "Landlock" in shown.stdout


@pytest.mark.docker
def test_sees_the_engine_and_the_image(engine):
    found = {finding.name: finding for finding in examine()}
    assert engine.version()["Version"] in found["Docker engine"].found
    assert found["image"].good
    assert auto(list(found.values()))[0] == "docker"
