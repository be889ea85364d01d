"""Honest programs that are easy to misjudge: each is right under a plain python3.

Grouped by what they depend on. Each prints exactly `output`. If it names a function, `input` is the
JSON list of the arguments and `output` the JSON of the result.
"""

from __future__ import annotations

from tests.envs.honest import libraries, scripts
from tests.envs.honest.base import Honest

PROGRAMS: dict[str, Honest] = {
    f"{group}: {name}": honest
    for group, programs in {
        "ending": scripts.ENDING,
        "streams": scripts.STREAMS,
        "sources": scripts.SOURCES,
        "library": libraries.LIBRARY,
        "platform": libraries.PLATFORM,
        "numpy": libraries.NUMPY,
        "calls": libraries.CALLS,
    }.items()
    for name, honest in programs.items()
}
