"""What is asked of the same run or stage again and again, found once and kept as long as it is."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import wraps
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar
from weakref import WeakKeyDictionary


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what `function(of, *rest)` found until nobody holds `of` any more, or what equals it.

    `functools.cache` would hold every run of a report, with its samples, to the report's end.
    """
    found: WeakKeyDictionary[Any, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()

    @wraps(function)
    def kept(of: Any, *rest: Any) -> Any:
        own = found.setdefault(of, {})
        if rest not in own:
            own[rest] = function(of, *rest)
        return own[rest]

    return kept


# The machine's cores, for what a report does hundreds of times.


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
