"""Keep problems by what their rows say: difficulty, rating, date of the contest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from envs.tasks.config import TaskConfig

NAMED = 6  # difficulties that a message names


class Described(Protocol):
    """What a row says of its problem; "" and None: nothing."""

    @property
    def difficulty(self) -> str: ...
    @property
    def rating(self) -> int | None: ...
    @property
    def date(self) -> str: ...


@dataclass(frozen=True)
class _Rule:
    """One key of the configuration with its value, and the field of a problem that it reads."""

    key: str
    value: Any
    field: str
    keeps: Callable[[Any], bool]


class RowSelection:
    """The keys task.difficulty, min_rating, max_rating, from and to.

    A problem that lacks the field is left out. A data set in which no problem has it is an error,
    because the key would silently leave nothing. So is a difficulty that no problem has.
    """

    def __init__(self, config: TaskConfig) -> None:
        """Raises ValueError if no value can lie between two bounds."""
        c = config
        bounds: tuple[tuple[Any, Any, str, str], ...] = (
            (c.min_rating, c.max_rating, "min_rating", "max_rating"),
            (c.date_from, c.date_to, "from", "to"),
        )
        for low, high, low_key, high_key in bounds:
            if low is not None and high is not None and low > high:
                keys = f"task.{low_key}={low} with task.{high_key}={high}"
                raise ValueError(f"{keys}: nothing lies between; swap the two")
        wanted = {text.lower() for text in c.difficulty or ()}
        rules = (
            _Rule("difficulty", c.difficulty, "difficulty", lambda text: text.lower() in wanted),
            _Rule("min_rating", c.min_rating, "rating", lambda rating: rating >= c.min_rating),
            _Rule("max_rating", c.max_rating, "rating", lambda rating: rating <= c.max_rating),
            _Rule("from", c.date_from, "date", lambda date: date >= c.date_from),
            _Rule("to", c.date_to, "date", lambda date: date <= c.date_to),
        )
        self.task, self.wanted = config.name, c.difficulty or []
        self.rules = [rule for rule in rules if rule.value is not None]
        self.unstated = {rule.field for rule in self.rules}  # fields that no problem had so far
        self.problems, self.difficulties = 0, set[str]()

    def note(self, problems: Iterable[Described]) -> None:
        """Note which fields the data set has."""
        for problem in problems if self.rules else ():
            self.problems += 1
            self.difficulties.add(problem.difficulty)
            for field in [field for field in self.unstated if _stated(problem, field)]:
                self.unstated.remove(field)

    def check(self) -> None:
        """Raise ValueError for a key whose field, or a difficulty that, no noted problem has."""
        for rule in self.rules:
            if self.problems and rule.field in self.unstated:
                value = ",".join(rule.value) if isinstance(rule.value, list) else rule.value
                raise ValueError(
                    f"task.{rule.key}={value}: no row of task={self.task} has a {rule.field}; "
                    f"leave the key out"
                )
        if self.problems:
            check_difficulties(self.task, self.wanted, self.difficulties)

    def mismatch(self, problem: Described) -> str | None:
        """Return which key a problem fails, or None."""
        for rule in self.rules:
            if not _stated(problem, rule.field):
                return f"no {rule.field}, which task.{rule.key} reads"
            if not rule.keeps(getattr(problem, rule.field)):
                return f"not of task.{rule.key}"
        return None


def check_difficulties(task: str, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise ValueError for a wanted difficulty that is none of the rows', and name the nearest.

    Case does not matter. `known`: the difficulties of all rows.
    """
    texts = {text.lower(): text for text in sorted(known) if text}
    for text in wanted:
        if text.lower() not in texts:
            near = difflib.get_close_matches(text.lower(), texts, n=NAMED, cutoff=0.0)
            more = len(texts) - len(near)
            raise ValueError(
                f"task.difficulty={text}: no row of task={task} has it; the nearest of its "
                f"difficulties: {', '.join(texts[each] for each in near)}"
                f"{f' and {more} more' if more else ''}"
            )


def _stated(problem: Described, field: str) -> bool:
    return getattr(problem, field) not in ("", None)
