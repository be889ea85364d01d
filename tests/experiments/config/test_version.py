"""The version of the code: commit, uncommitted changes, packages; where git is, and where not."""

import subprocess

import pytest

from experiments.config import version
from experiments.config.version import changes_in, is_tracked, packages

AS_SOMEONE = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(folder, *arguments, **given):
    subprocess.run(
        ["git", *AS_SOMEONE, *arguments], cwd=folder, check=True, capture_output=True, **given
    )


@pytest.fixture
def repository(tmp_path):
    """A repository with the places that this one has."""
    for name in ("run.py", "envs/judge.py", "docs/page.md", ".gitignore"):
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one\ntwo\n")
    git(tmp_path / "tree", "init", "-q")
    git(tmp_path / "tree", "add", ".")
    git(tmp_path / "tree", "commit", "-qm", "first")
    return tmp_path / "tree"


def test_the_changes_make_the_same_tree_again(repository, tmp_path):
    assert changes_in(repository) == b""
    git(tmp_path, "clone", "-q", "tree", "clone")
    new = {
        "run.py": b"one\n2\n",
        "envs/new.py": b"x = '\xff'\r\ny = 1\rz\n",
        "conf/a b.yaml": b"no: newline",
        "algorithms/empty.py": b"",
    }
    for name, content in new.items():
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(content)
    (repository / "envs" / "judge.py").unlink()
    (repository / "docs" / "notes.py").write_text("of no room")
    (repository / "conf" / "key.txt").write_text("no source")
    git(tmp_path / "clone", "apply", "-", input=changes_in(repository))
    for name, content in new.items():
        assert (tmp_path / "clone" / name).read_bytes() == content
    assert not (tmp_path / "clone" / "envs" / "judge.py").exists()
    assert not (tmp_path / "clone" / "docs" / "notes.py").exists()
    assert not (tmp_path / "clone" / "conf" / "key.txt").exists()


def test_a_repository_around_an_installed_package_is_not_its_own(repository):
    package = repository / "site-packages"
    package.mkdir()
    (package / "run.py").write_text("")
    (repository / "run.py").write_text("a change of the user's own project")
    assert is_tracked(repository) and not is_tracked(package)
    assert changes_in(package) == b""


def test_without_git_or_a_repository_nothing_is_known(tmp_path, repository, monkeypatch):
    assert changes_in(tmp_path) == b""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert changes_in(repository) == b""
    assert version.commit.__wrapped__() is None


def test_packages_are_those_of_pyproject_and_of_a_wheel(monkeypatch, tmp_path):
    found = packages()
    assert found["torch"].startswith("2.") and found["peft"]
    assert not {"ruff", "mypy", "pytest"} & set(found)
    monkeypatch.setattr(version, "ROOT", tmp_path)
    lines = ["torch==2.13.0", 'peft==0.21.2; extra == "lora"', 'ruff==0; extra == "dev"', "gone"]
    monkeypatch.setattr(version, "requires", lambda _: lines)
    assert list(packages.__wrapped__()) == ["torch", "peft"]
