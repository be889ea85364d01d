"""The version of the code: of this package, its commit and what differs from it, its packages."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("run.py", "algorithms", "envs", "experiments", "analysis", "conf")
SOURCES = (".py", ".yaml", ".jinja")
GIT_S = 2.0  # it takes a hundredth of that


def version_text() -> str:
    """Name, version and commit in one line."""
    try:
        number = version("spo-bench")
    except PackageNotFoundError:  # a checkout that was not installed
        text = (ROOT / "pyproject.toml").read_text()
        found = re.search(r'^version = "(.+)"', text, re.MULTILINE)
        number = found[1] if found else "unknown"
    return f"spo-bench {number} commit {commit() or 'unknown'}"


@cache
def commit() -> str | None:
    """Return the code's commit, with a plus sign if the working tree differs from it.

    It is asked for once, since a process keeps the code that it began with.
    """
    if not is_tracked(ROOT):
        return None
    described = _git("describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*")
    return described.decode().strip() or None


@cache
def uncommitted_changes() -> bytes:
    """Return the difference to the commit as a patch, new source files included.

    Empty if there is none, and where there is no repository or git does not answer.
    """
    return changes_in(ROOT)


def changes_in(folder: Path) -> bytes:
    """Return `git diff HEAD` of the repository in `folder`, with its untracked source files."""
    if not is_tracked(folder):
        return b""
    plain = ("--relative", "--no-color", "--no-ext-diff", "--no-textconv")
    tracked = _git("diff", "HEAD", *plain, folder=folder)
    new = _git("ls-files", "--others", "--exclude-standard", "-z", *ROOMS, folder=folder)
    names = os.fsdecode(new).split("\0")
    sources = [folder / name for name in sorted(names) if name.endswith(SOURCES)]
    return b"".join([tracked, *(_patch_of_new(file, folder) for file in sources)])


def _patch_of_new(file: Path, folder: Path) -> bytes:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError:
        return b""
    name = os.fsencode(file.relative_to(folder).as_posix())
    head = b"diff --git a/%s b/%s\nnew file mode 100644\n" % (name, name)
    end = b"\n\\ No newline at end of file\n"
    if not lines[-1]:  # the file ends with a newline, or is empty
        del lines[-1]
        end = b"\n"
    if not lines:
        return head
    hunk = b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1,%d @@\n+" % (name, len(lines))
    return head + hunk + b"\n+".join(lines) + end


def is_tracked(folder: Path) -> bool:
    """Return whether a repository has the code in `folder`.

    One that the folder merely lies in is another project's, such as that of a virtual environment
    which this package is installed in.
    """
    return bool(_git("ls-files", "run.py", folder=folder))


def _git(*arguments: str, folder: Path = ROOT) -> bytes:
    """Return git's output in `folder`, empty if it has none to give."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, timeout=GIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout


@cache
def packages() -> dict[str, str]:
    """Return the installed versions of the packages that pyproject.toml names, but for `dev`."""
    found = dict[str, str]()
    for name in _required():
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _required() -> list[str]:
    file = ROOT / "pyproject.toml"
    lines: list[str] = []
    if file.is_file():
        project = tomllib.loads(file.read_text())["project"]
        extras = project["optional-dependencies"]
        groups = (project["dependencies"], *(extras[name] for name in extras if name != "dev"))
        lines = [line for group in groups for line in group]
    else:  # installed from a wheel
        with suppress(PackageNotFoundError):
            lines = requires("spo-bench") or []
    wanted = [line for line in lines if not re.search(r"extra == .dev\b", line)]
    return [found[0] for line in wanted if (found := re.match(r"[\w.-]+", line))]
