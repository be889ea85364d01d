"""Call problems: a function is called on JSON arguments, and what it returns is JSON again."""

from __future__ import annotations

from json import dumps, loads

# What call-based problems take for granted, as the sites they come from do.
PRELUDE = """
from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
from math import *
from builtins import pow
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
"""


def call(names: dict, function: str, arguments: str) -> bytes:
    """The result, as JSON, of a function, or of the method of Solution, on a JSON array."""
    solution = names.get("Solution")
    target = getattr(solution(), function) if hasattr(solution, function) else names[function]
    result = target(*loads(arguments))
    try:
        return dumps(result, default=plain).encode()
    except TypeError:
        return dumps(with_plain_keys(result), default=plain).encode()


def plain(value: object) -> object:
    """The nearest that JSON has to a value that it lacks. Raises TypeError where nothing is.

    numpy's scalars and arrays become Python's; Decimal and Fraction become an int if they are
    whole, else a float; sets become lists, sorted where their members have an order; so do all
    other iterables, as they come.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "as_integer_ratio"):
        try:
            whole = int(value)
        except (ValueError, OverflowError):  # not a number, or infinite
            return float(value)
        return whole if whole == value else float(value)
    if isinstance(value, set | frozenset):
        try:
            return sorted(value)
        except TypeError:
            pass
    return list(value)


def with_plain_keys(value: object) -> object:
    """A value whose dictionaries, at any depth, have no keys of numpy's types."""
    if isinstance(value, dict):
        return {
            key.tolist() if hasattr(key, "tolist") else key: with_plain_keys(item)
            for key, item in value.items()
        }
    return list(map(with_plain_keys, value)) if isinstance(value, list | tuple) else value
