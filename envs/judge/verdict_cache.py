"""The verdict cache: grades of programs on disk, shared by runs.

A judge with this cache gives the same verdicts and counters as one without. It uses an entry only
if it covers every test that a run would reach, in the judge's own order; otherwise the program is
run. Doubtful grades are not stored.
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
from typing import Any

from envs.cache_folder import cache_root
from envs.judge.grading import Grade
from envs.problem import Verdict

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 2**31  # a larger file is only read
MAX_DETAIL_CHARS = 10_000  # grades with a longer detail are not stored
LOCK_TIMEOUT_S = 30.0  # wait for another process that writes
_PAGE_BYTES = 4096

Key = tuple[str, str, str]  # version of the judge, hash of the problem, hash of the program


@dataclass(frozen=True, slots=True)
class CachedGrades:
    """A program's grades on some of a problem's tests."""

    tests: dict[int, tuple[Grade, float]]  # test → its grade and CPU seconds
    wall_s: float  # wall time of judging the program


class VerdictCache:
    """An SQLite file, for any number of processes; one object serves all threads of a process.

    If the file fails, now or later, one warning is logged and the cache is off: programs are run.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock, self._full = threading.Lock(), False
        self._connection: sqlite3.Connection | None = None
        with self._guarded():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _connect(file)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def get(self, key: Key) -> CachedGrades | None:
        """Return the stored grades of a program."""
        with self._guarded():
            if self._connection is not None:
                row = _select(self._connection, _digest(key))
                if row is not None:
                    return CachedGrades(dict(map(_parse_test, json.loads(row[1]))), row[0])
        return None

    def add(self, programs: Iterable[tuple[Key, CachedGrades]]) -> None:
        """Merge these grades into the stored ones, in one transaction."""
        with self._guarded():
            if self._connection is None or self._full:
                return
            try:
                with self._connection:
                    self._connection.execute("BEGIN IMMEDIATE")
                    for key, grades in programs:
                        _merge(self._connection, _digest(key), grades)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                self._full = True
                log.warning("%s is full and read-only from now on", self.file)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (OSError, sqlite3.Error, ValueError, TypeError) as error:
                log.warning("%s: %s; the verdict cache is off", self.file, error)
                self._connection = None


def default_file() -> Path:
    """Return this machine's file: the meaning of a CPU limit depends on the machine's speed."""
    return cache_root() / "verdicts" / f"{platform.node() or 'here'}.sqlite"


def _connect(file: Path) -> sqlite3.Connection:
    """Open the database. A process that dies while writing leaves the old content intact."""
    connection = sqlite3.connect(
        file, LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA max_page_count = {MAX_FILE_BYTES // _PAGE_BYTES}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS programs (key BLOB PRIMARY KEY, wall_s REAL, tests TEXT)"
        " WITHOUT ROWID"
    )
    return connection


def _select(connection: sqlite3.Connection, digest: bytes) -> tuple[float, str] | None:
    """Return (wall seconds, tests as JSON) of a program."""
    query = "SELECT wall_s, tests FROM programs WHERE key = ?"
    return connection.execute(query, (digest,)).fetchone()


def _merge(connection: sqlite3.Connection, digest: bytes, grades: CachedGrades) -> None:
    row = _select(connection, digest)
    stored = {test: rest for test, *rest in json.loads(row[1])} if row else {}
    for test, (grade, cpu_s) in grades.tests.items():
        if len(grade.detail) <= MAX_DETAIL_CHARS:
            stored[test] = [grade.verdict, round(cpu_s, 6), grade.detail, grade.output]
    tests = json.dumps([[test, *rest] for test, rest in sorted(stored.items())])
    values = (digest, round(grades.wall_s, 6), tests)
    connection.execute("INSERT OR REPLACE INTO programs VALUES (?, ?, ?)", values)


def _digest(key: Key) -> bytes:
    return hashlib.sha256(repr(key).encode()).digest()


def _parse_test(row: list[Any]) -> tuple[int, tuple[Grade, float]]:
    test, verdict, cpu_s, detail, output = row
    return test, (Grade(Verdict(verdict), detail, output=output), cpu_s)
