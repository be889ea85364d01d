"""An honest program, and its right output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Honest:
    """A program, what it reads, and what it must then print or return."""

    program: str
    output: str
    input: str = ""
    fn_name: str | None = None
