"""What a Docker worker is made of: this environment's Python and numpy, and nothing else.

The worker's own program is not in the image: it is handed over at start, so that an image never
goes stale with it. The image's tag names the versions, and hashes the interpreter's path, the
links, and the code that builds the image, so that one made of other parts is not taken for this
one.
"""

from __future__ import annotations

import hashlib
import platform
import re
from pathlib import Path

from envs.sandbox.inside.confinement import STREAM_LINKS
from envs.sandbox.python_runtime import base_python, versions

REPOSITORY = "spo-bench-sandbox"
# The folder that becomes a worker's root once it has started. What an engine adds to a container,
# /proc, /sys and /dev, stays outside.
CAGE = "/cage"
_FOLDER = Path(__file__).parent
RECIPE = (_FOLDER / "build_image.py", _FOLDER / "python_runtime.py")


def image_tag() -> str:
    """`repository:tag` of the image that fits this environment and checkout."""
    digest = hashlib.sha256(f"{base_python()} {platform.machine()} {STREAM_LINKS}".encode())
    for path in RECIPE:
        digest.update(path.read_bytes())
    return f"{REPOSITORY}:{re.sub(r'[^0-9a-z.]+', '-', versions())}-{digest.hexdigest()[:8]}"
