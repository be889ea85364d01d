"""The version of this project: of the package, and of the code's commit."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def version_text() -> str:
    """Name, version and commit in one line."""
    try:
        number = version("spo-bench")
    except PackageNotFoundError:  # a checkout that was not installed
        text = (ROOT / "pyproject.toml").read_text()
        found = re.search(r'^version = "(.+)"', text, re.MULTILINE)
        number = found[1] if found else "unknown"
    return f"spo-bench {number} commit {commit() or 'unknown'}"


def commit() -> str | None:
    """Return the code's commit, with a plus sign if the working tree differs from it."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
