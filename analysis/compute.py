"""Memoisation per object, and parallel maps over the machine's cores."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import wraps
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Job = TypeVar("Job")
Result = TypeVar("Result")

# Collecting garbage among nodes of parsed programs took a twelfth of the time and freed nothing.
COLLECT_THRESHOLD = 100_000


def memoize(function: Callable[..., Result]) -> Callable[..., Result]:
    """Cache `function(owner, *arguments)` for as long as `owner` (or an equal object) is alive.

    `functools.cache` would keep every run of a report, with its samples, to the report's end.
    """
    results: WeakKeyDictionary[Any, dict[tuple[Any, ...], Result]] = WeakKeyDictionary()

    @wraps(function)
    def memoized(owner: Any, *arguments: Any) -> Result:
        by_arguments = results.setdefault(owner, {})
        if arguments not in by_arguments:
            by_arguments[arguments] = function(owner, *arguments)
        return by_arguments[arguments]

    return memoized


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def parallel_map(
    function: Callable[[Job], Result], jobs: Sequence[Job], parallel: bool
) -> list[Result]:
    """Apply `function` to each job; if `parallel`, on all cores, except within a worker process."""
    if not parallel or cores() == 1 or parent_process():
        return list(map(function, jobs))
    with process_pool() as processes:
        return list(processes.map(function, jobs, chunksize=len(jobs) // (8 * cores()) + 1))


def process_pool() -> ProcessPoolExecutor:
    """Return a pool with one process per core."""
    return ProcessPoolExecutor(
        cores(),
        get_context("forkserver"),
        initializer=gc.set_threshold,
        initargs=(COLLECT_THRESHOLD,),
    )
