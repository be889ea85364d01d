"""Cells of the tables of a study's page."""

from __future__ import annotations

from collections.abc import Mapping


def interval(row: Mapping[str, float], mean: str, low: str, high: str) -> str:
    """A mean and its interval; – where there is none."""
    if mean not in row or row[mean] != row[mean]:
        return "–"
    return f"{row[mean]:.3f} [{row[low]:.3f}, {row[high]:.3f}]"


def signed(found: tuple[float, float, float] | None, digits: int = 3) -> str:
    """A difference and its interval, where there is one: a single seed has none."""
    if found is None or found[0] != found[0]:
        return "–"
    if found[1] != found[1]:
        return f"{found[0]:+.{digits}f}".replace("-", "−")
    text = f"{found[0]:+.{digits}f} [{found[1]:+.{digits}f}, {found[2]:+.{digits}f}]"
    return text.replace("-", "−")


def count(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:,.0f}"
