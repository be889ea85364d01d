"""The tag of the workers' Docker image, which holds this environment's Python and numpy only.

The worker's own program is passed on at start, so an image never goes stale with it. The tag names
the versions. It hashes the interpreter's path, the links, and the code that builds the image, so
an image made of other parts has another tag.
"""

from __future__ import annotations

import hashlib
import platform
import re
from pathlib import Path

from envs.sandbox.inside.confinement import STREAM_LINKS
from envs.sandbox.python_runtime import base_python, versions

REPOSITORY = "spo-bench-sandbox"
# The folder that becomes a worker's root once it has started. The engine's additions to a
# container, /proc, /sys and /dev, stay outside.
CAGE = "/cage"
_FOLDER = Path(__file__).parent
RECIPE = (_FOLDER / "build_image.py", _FOLDER / "python_runtime.py")


def image_tag() -> str:
    """Return `repository:tag` of the image that fits this environment and checkout."""
    digest = hashlib.sha256(f"{base_python()} {platform.machine()} {STREAM_LINKS}".encode())
    for path in RECIPE:
        digest.update(path.read_bytes())
    return f"{REPOSITORY}:{re.sub(r'[^0-9a-z.]+', '-', versions())}-{digest.hexdigest()[:8]}"
