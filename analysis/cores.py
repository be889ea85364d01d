"""The machine's cores, for what a report does hundreds of times."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def pool() -> ProcessPoolExecutor:
    """A process for each core."""
    # Looking for cycles among the parts of parsed programs took a twelfth of the time, in vain.
    collect_seldom = {"initializer": gc.set_threshold, "initargs": (100_000,)}
    return ProcessPoolExecutor(cores(), get_context("forkserver"), **collect_seldom)
