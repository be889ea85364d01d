"""Programs that are judged once and then known to all runs: what the judge said is kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from envs.environment import Environment, Submission
from envs.problem import Judgement, Problem, Verdict
from envs.tasks.cache import replace_file
from experiments.runs.ledger import Ledger


class JudgedPrograms:
    """Judges what is not known yet; a failure of the judge itself is not kept."""

    def __init__(self, folder: Path, judge: Environment, ledger: Ledger) -> None:
        self.folder, self.judge, self.ledger = folder / judge.version, judge, ledger

    def of(self, problem: Problem, responses: Mapping[str, str]) -> dict[str, Judgement]:
        """What the judge says of each response; the keys, programs, name them on disk."""
        file = self.folder / f"{problem.hash}.json"
        known = dict(_on_disk(file))
        missing = [program for program in responses if _key(program) not in known]
        if missing:
            with self.ledger.phase("judge"):
                fresh = self.judge.judge([Submission(problem, responses[p]) for p in missing])
            known |= {_key(p): judgement for p, judgement in zip(missing, fresh, strict=True)}
            kept = {
                key: asdict(judgement) | {"program": bool(judgement.program)}
                for key, judgement in known.items()
                if judgement.verdict is not Verdict.INFRA_ERROR
            }
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, json.dumps(kept))
        said = {program: known[_key(program)] for program in responses}
        return {
            p: replace(judgement, program=p if judgement.program else "")
            for p, judgement in said.items()
        }


def _on_disk(file: Path) -> Iterator[tuple[str, Judgement]]:
    """What is kept; a file that is missing or broken keeps nothing."""
    with suppress(FileNotFoundError, json.JSONDecodeError):
        for key, held in json.loads(file.read_text()).items():
            yield key, Judgement(**held | {"verdict": Verdict(held["verdict"])})


def _key(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:24]
