"""What is asked of the same run or stage again and again, found once and kept as long as it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
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
