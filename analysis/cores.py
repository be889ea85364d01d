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
    """A process for each core, all forked from one that has imported what a report needs."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["analysis.parts", "analysis.plots"])
    # Looking for cycles among the parts of parsed programs took a twelfth of the time, in vain.
    return ProcessPoolExecutor(cores(), context, initializer=gc.set_threshold, initargs=(100_000,))
