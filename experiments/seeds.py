"""Random streams by name: no draw depends on how many draws came before it."""

from __future__ import annotations

import hashlib
import random


def seed_for(*parts: object) -> int:
    """Return a 63-bit seed for a path of names and numbers, the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(*parts: object) -> random.Random:
    """Return a random generator for one purpose."""
    return random.Random(seed_for(*parts))
