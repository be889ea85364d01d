"""Verdicts on disk: the cache that runs share, and the log of `python -m envs.validate`.

A judge with the cache gives the same verdicts and counters as one without. It uses an entry only if
it covers every test that a run would reach, in the judge's own order; otherwise the program is run.
Doubtful grades are not stored. Verdicts outlive a checkout, so each is stored under the version of
the rules that decided it (`rules_version`).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import logging
import os
import platform
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from envs.caching import cache_root
from envs.judge.grading import Grade
from envs.problem import Judgement, Problem, Verdict

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 2**31
MAX_DETAIL_CHARS = 10_000  # grades with a longer detail are not stored
LOCK_TIMEOUT_S = 30.0  # wait for another process that writes
_PAGE_BYTES = 4096
_PACKAGE = Path(__file__).resolve().parents[1]
_DECIDING = ("problem.py", "judge/*.*", "sandbox/*.*", "sandbox/inside/*.py")
_TOOLS = ("sandbox/doctor.py",)  # a command: no verdict depends on it

Key = tuple[str, str, str]  # version of the judge, hash of the problem, hash of the program


@functools.cache
def rules_version(package: Path = _PACKAGE) -> str:
    """Return 10 hex digits over the deciding sources of `envs`, or of a copy of its folder.

    It depends neither on the folder that they lie in, nor on line endings.
    """
    digest = hashlib.sha256()
    files = {
        file.relative_to(package).as_posix(): file
        for pattern in _DECIDING
        for file in package.glob(pattern)
    }
    for name in sorted(files.keys() - set(_TOOLS)):
        source = files[name].read_bytes().replace(b"\r\n", b"\n")
        digest.update(repr((name, source)).encode())
    return digest.hexdigest()[:10]


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
        self._lock = threading.Lock()
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
        with self._guarded() as connection:
            if row := connection and _select(connection, _digest(key)):
                tests = {
                    test: (Grade(Verdict(verdict), detail, output=output), cpu_s)
                    for test, verdict, cpu_s, detail, output in json.loads(row[1])
                }
                return CachedGrades(tests, row[0])
        return None

    def add(self, programs: Iterable[tuple[Key, CachedGrades]]) -> None:
        """Merge these grades into the stored ones, in one transaction."""
        with self._guarded() as connection:
            if connection is not None:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    for key, grades in programs:
                        _merge(connection, _digest(key), grades)

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection | None]:
        with self._lock:
            try:
                yield self._connection
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


# ---- the log of `python -m envs.validate` ----


class VerdictLog:
    """A log of judgements, for resuming: one JSON line per judged program. A context manager.

    A line is written as soon as its program ends, so a kill loses only programs in flight. A
    truncated last line is removed. Without a file nothing is stored. Entering raises OSError, and
    ValueError if the file is not a verdict log or is in use.
    """

    def __init__(self, file: Path | None, judge_version: str) -> None:
        self.file, self.judge_version = file, judge_version
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self._out: BinaryIO | None = None

    def __enter__(self) -> VerdictLog:
        if self.file is not None:
            self._out = self.file.open("a+b")
            try:
                fcntl.flock(self._out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"out={self.file}: another process writes to this file") from None
            self._out.seek(0)
            complete, begin = 0, b'{"problem": '
            for line in self._out:
                if not line.endswith(b"\n") and line[: len(begin)] == begin[: len(line)]:
                    os.truncate(self.file, complete)
                    break  # any other text is not a line of this log and is kept
                complete += len(line)
                self._load(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self._out is not None:
            self._out.close()

    def get(self, problem: Problem, kind: str, program: str) -> Judgement | None:
        """Return the logged judgement of this program, problem and judge version."""
        row = self._rows.get((self.judge_version, problem.hash, kind, _program_digest(program)))
        if row is None:
            return None
        kept = {key: row[key] for key in ("passed", "total", "cpu_s", "detail")}
        return Judgement(Verdict(row["verdict"]), run=row["passed"], program="", **kept)

    def add(
        self,
        problem: Problem,
        kind: str,
        index: int,
        program: str,
        needs_checker: bool,
        judgement: Judgement,
    ) -> None:
        """Write one judgement. `kind` and `index` name the program among the problem's."""
        if self._out is None:
            return
        row = {
            "problem": problem.name,
            "kind": kind,
            "index": index,
            "verdict": judgement.verdict,
            "passed": judgement.passed,
            "total": judgement.total,
            "cpu_s": round(judgement.cpu_s, 4),
            "needs_checker": needs_checker,
            "detail": judgement.detail,
            "hash": problem.hash,
            "program": _program_digest(program),
            "judge": self.judge_version,
            "by_wall_time": judgement.by_wall_time,
        }
        self._out.write(json.dumps(row).encode() + b"\n")
        self._out.flush()

    def _load(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            certain = row["verdict"] != Verdict.INFRA_ERROR and not row.get("by_wall_time")
            if certain:  # all others are judged again
                self._rows[row["judge"], row["hash"], row["kind"], row["program"]] = row
        except (ValueError, KeyError, TypeError):
            message = f"out={self.file}: not a file of envs.validate; name another"
            raise ValueError(message) from None


def _program_digest(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:16]
