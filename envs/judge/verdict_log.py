"""The verdicts of a validation, a JSON line each: what was judged is not judged again.

Lines are written as programs end, so a kill loses only what was in flight; a line that was cut is
taken off before the next one is written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from envs.problem import Judgement, Problem, Verdict

_BEGIN = b'{"problem": '  # of every line


class VerdictLog:
    """Verdicts on disk, or nowhere where there is no file; use as a context.

    Entering it raises OSError, and ValueError for a file that is not a journal or is being written.
    """

    def __init__(self, file: Path | None, judge_version: str) -> None:
        self.file, self.judge_version = file, judge_version
        self._known: dict[tuple[str, ...], dict[str, Any]] = {}
        self._out: BinaryIO | None = None

    def __enter__(self) -> VerdictLog:
        if self.file is not None:
            self._out = self.file.open("a+b")
            try:
                fcntl.flock(self._out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"out={self.file}: another process writes to this file") from None
            self._out.seek(0)
            whole = 0
            for line in self._out:
                if not line.endswith(b"\n") and line[: len(_BEGIN)] == _BEGIN[: len(line)]:
                    break  # cut in two; a line of anything else is not ours to cut off
                whole += len(line)
                self._remember(line)
            os.truncate(self.file, whole)
        return self

    def __exit__(self, *_: object) -> None:
        if self._out is not None:
            self._out.close()

    def known(self, problem: Problem, kind: str, program: str) -> Judgement | None:
        """What an earlier run of the same judge said of this program on these tests."""
        held = self._known.get((self.judge_version, problem.hash, kind, _digest(program)))
        if held is None:
            return None
        return Judgement(
            verdict=Verdict(held["verdict"]),
            passed=held["passed"],
            total=held["total"],
            run=held["passed"],
            program="",
            cpu_s=held["cpu_s"],
            detail=held["detail"],
        )

    def add(
        self, problem: Problem, kind: str, index: int, program: str, marked: bool, said: Judgement
    ) -> None:
        """One more verdict."""
        if self._out is None:
            return
        row = {
            "problem": problem.name,
            "kind": kind,
            "index": index,
            "verdict": said.verdict,
            "passed": said.passed,
            "total": said.total,
            "cpu_s": round(said.cpu_s, 4),
            "needs_checker": marked,
            "detail": said.detail,
            "hash": problem.hash,
            "program": _digest(program),
            "judge": self.judge_version,
        }
        self._out.write(json.dumps(row).encode() + b"\n")
        self._out.flush()

    def _remember(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            if row["verdict"] != Verdict.INFRA_ERROR:  # to be tried again
                self._known[row["judge"], row["hash"], row["kind"], row["program"]] = row
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"out={self.file}: not a file of envs.validate; name another"
            ) from None


def _digest(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:16]
