"""The version of the judging rules: a digest of the code that decides verdicts.

Verdicts are remembered on disk longer than a checkout lives, so each is stored under this version.
It depends on the sources of the judge and the sandbox, and on nothing else: not on the folder that
they lie in, nor on line endings.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_DECIDING = ("problem.py", "judge/*.py", "judge/*/*.py", "sandbox/*.py", "sandbox/inside/*.py")
_TOOLS = ("sandbox/build_image.py", "sandbox/doctor.py")  # commands: no verdict depends on them


@functools.cache
def rules_version(package: Path = _PACKAGE) -> str:
    """Return 10 hex digits over the deciding sources of `envs`, or of a copy of its folder."""
    digest = hashlib.sha256()
    files = {
        file.relative_to(package).as_posix(): file
        for pattern in _DECIDING
        for file in package.glob(pattern)
    }
    for name in sorted(files.keys() - set(_TOOLS)):
        source = files[name].read_bytes().replace(b"\r\n", b"\n")
        digest.update(repr((name, source)).encode())
    return digest.hexdigest()[:10]
