"""What a Docker worker is made of: a Python that can run and nothing else, and a seccomp profile.

The worker's own program is not in the image: it is handed over at start, so that an image never
goes stale with it. The image's tag is a hash of the recipe, so that one built by an older recipe
is not taken for this one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = "spo-bench-sandbox"
PACKAGES = "/opt/packages"  # numpy, inside either image
RECIPE = ("Dockerfile", "packages.txt", "build.py")


def image_tag() -> str:
    """`repository:tag` of the image that this checkout's recipe builds."""
    digest = hashlib.sha256()
    for name in RECIPE:
        digest.update((HERE / name).read_bytes())
    return f"{REPOSITORY}:{digest.hexdigest()[:12]}"


def seccomp_profile() -> str:
    """The JSON text of the workers' seccomp profile, as the engine's API takes it."""
    return (HERE / "seccomp.json").read_text()
