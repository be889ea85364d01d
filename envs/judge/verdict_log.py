"""The verdict log of `python -m envs.validate`: one JSON line per judged program, for resuming.

A line is written as soon as its program ends, so a kill loses only programs in flight. A truncated
last line is removed before the next one is written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from envs.problem import Judgement, Problem, Verdict

_BEGIN = b'{"problem": '  # start of every line


class VerdictLog:
    """Context manager for a verdict log; without a file nothing is stored.

    Entering raises OSError, and ValueError if the file is not a verdict log or is in use.
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
            complete_bytes = 0
            for line in self._out:
                if not line.endswith(b"\n") and line[: len(_BEGIN)] == _BEGIN[: len(line)]:
                    break  # truncated; any other text is not a line of this log and is kept
                complete_bytes += len(line)
                self._load_line(line)
            os.truncate(self.file, complete_bytes)
        return self

    def __exit__(self, *_: object) -> None:
        if self._out is not None:
            self._out.close()

    def get(self, problem: Problem, kind: str, program: str) -> Judgement | None:
        """Return the logged judgement of this program, problem and judge version."""
        row = self._rows.get((self.judge_version, problem.hash, kind, _digest(program)))
        if row is None:
            return None
        return Judgement(
            verdict=Verdict(row["verdict"]),
            passed=row["passed"],
            total=row["total"],
            run=row["passed"],
            program="",
            cpu_s=row["cpu_s"],
            detail=row["detail"],
        )

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
            "program": _digest(program),
            "judge": self.judge_version,
            "by_wall_time": judgement.by_wall_time,
        }
        self._out.write(json.dumps(row).encode() + b"\n")
        self._out.flush()

    def _load_line(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            certain = row["verdict"] != Verdict.INFRA_ERROR and not row.get("by_wall_time")
            if certain:  # all others are judged again
                self._rows[row["judge"], row["hash"], row["kind"], row["program"]] = row
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"out={self.file}: not a file of envs.validate; name another"
            ) from None


def _digest(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:16]
