"""What programs came to, on disk: what one run had judged, another need not have run again.

A judge that is given it answers as it would have after running the program: for every test that it
would have run, in its own order, what the test came to is known, or the program is run. Verdicts
and counters are those of a judge without it; what was in doubt is not kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envs.cache_folder import root
from envs.judge.grading import Grade
from envs.problem import Verdict

log = logging.getLogger(__name__)

LARGEST_BYTES = 2**31  # of the file; beyond it what is known is read and no more is kept
LONGEST_DETAIL = 10_000  # characters; what says more of itself is run again
WAIT_S = 30.0  # for another process that writes
_PAGE_BYTES = 4096

Key = tuple[str, str, str]  # the judge's version, a problem's hash, a program's


@dataclass(frozen=True, slots=True)
class Known:
    """What a program came to on some of a problem's tests."""

    tests: dict[int, tuple[Grade, float]]  # test → its grade and CPU seconds
    wall_s: float  # what judging it took


class VerdictCache:
    """The file; one object for all threads of a process, one file for any number of processes.

    A file that fails, at once or later, is told of in a line and used no more: what it would have
    answered is run.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock, self._full = threading.Lock(), False
        self._open: sqlite3.Connection | None = None
        with self._failing():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._open = _connect(file)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = None

    def of(self, key: Key) -> Known | None:
        """What is known of a program on a problem."""
        with self._failing():
            row = self._row(_digest(key))
            if row is not None:
                return Known(dict(map(_read, json.loads(row[1]))), row[0])
        return None

    def keep(self, programs: Iterable[tuple[Key, Known]]) -> None:
        """Add what is told here to what is known of these programs."""
        with self._failing():
            if self._open is None or self._full:
                return
            try:
                with self._open:  # one transaction
                    self._open.execute("BEGIN IMMEDIATE")
                    for key, known in programs:
                        self._add(_digest(key), known)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                self._full = True
                log.warning("%s is full: what programs come to is only read from now on", self.file)

    def _row(self, digest: bytes) -> tuple[float, str] | None:
        if self._open is None:
            return None
        found = self._open.execute("SELECT wall_s, tests FROM programs WHERE key = ?", (digest,))
        return found.fetchone()

    def _add(self, digest: bytes, known: Known) -> None:
        row = self._row(digest)
        held = {test: rest for test, *rest in json.loads(row[1])} if row else {}
        for test, (grade, cpu_s) in known.tests.items():
            if len(grade.detail) <= LONGEST_DETAIL:
                held[test] = [grade.verdict, round(cpu_s, 6), grade.detail]
        tests = json.dumps([[test, *rest] for test, rest in sorted(held.items())])
        told = (digest, round(known.wall_s, 6), tests)
        self._open.execute("INSERT OR REPLACE INTO programs VALUES (?, ?, ?)", told)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (OSError, sqlite3.Error, ValueError, TypeError) as error:
                log.warning("%s: %s; programs are run as if it were not there", self.file, error)
                self._open = None


def default_file() -> Path:
    """This machine's file: what a limit means hangs on how fast it is."""
    return root() / "verdicts" / f"{platform.node() or 'here'}.sqlite"


def _connect(file: Path) -> sqlite3.Connection:
    """Whoever dies while writing leaves whole what was there."""
    opened = sqlite3.connect(file, WAIT_S, isolation_level=None, check_same_thread=False)
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("PRAGMA synchronous = NORMAL")
    opened.execute(f"PRAGMA max_page_count = {LARGEST_BYTES // _PAGE_BYTES}")
    opened.execute(
        "CREATE TABLE IF NOT EXISTS programs (key BLOB PRIMARY KEY, wall_s REAL, tests TEXT)"
        " WITHOUT ROWID"
    )
    return opened


def _digest(key: Key) -> bytes:
    return hashlib.sha256(repr(key).encode()).digest()


def _read(row: list) -> tuple[int, tuple[Grade, float]]:
    test, verdict, cpu_s, detail = row
    return test, (Grade(Verdict(verdict), detail), cpu_s)
