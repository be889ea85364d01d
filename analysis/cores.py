"""The machine's cores, for what a report does hundreds of times."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import TypeVar

Job, Found = TypeVar("Job"), TypeVar("Found")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def each(function: Callable[[Job], Found], jobs: Sequence[Job], many: bool) -> list[Found]:
    """`function` of each job; of `many` on all cores, unless this process is one of several."""
    if not many or cores() == 1 or parent_process():
        return list(map(function, jobs))
    with pool() as processes:
        return list(processes.map(function, jobs, chunksize=len(jobs) // (8 * cores()) + 1))


def pool() -> ProcessPoolExecutor:
    """A process for each core."""
    # Looking for cycles among the parts of parsed programs took a twelfth of the time, in vain.
    collect_seldom = {"initializer": gc.set_threshold, "initargs": (100_000,)}
    return ProcessPoolExecutor(cores(), get_context("forkserver"), **collect_seldom)
