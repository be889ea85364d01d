"""Programs that are judged once and then known to all runs: what the judge said is kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from envs.cache_folder import replace_file
from envs.environment import AsyncEnvironment, Environment, JudgeStats, Submission
from envs.problem import Judgement, Problem, Verdict
from experiments.run_dir.budget import Ledger
from experiments.sample import Sample


class JudgementCache:
    """Judges what is not known yet; a failure of the judge itself is not kept."""

    def __init__(self, folder: Path, judge: Environment, ledger: Ledger) -> None:
        self.folder, self.judge, self.ledger = folder / judge.version, judge, ledger

    def judgements_of(self, problem: Problem, responses: Mapping[str, str]) -> dict[str, Judgement]:
        """What the judge says of each response; the keys, programs, name them on disk."""
        return self.submit(problem, responses)()

    def submit(
        self, problem: Problem, responses: Mapping[str, str]
    ) -> Callable[[], dict[str, Judgement]]:
        """Begin with it, where the judge works in other processes → what waits, and says it."""
        file = self.folder / f"{problem.hash}.json"
        known = dict(_on_disk(file))
        missing = [program for program in responses if _key(program) not in known]
        submissions = [Submission(problem, responses[program]) for program in missing]
        answer = _submit(self.judge, submissions) if missing else None

        def answered() -> dict[str, Judgement]:
            if answer is not None:
                with self.ledger.phase("judge"):
                    fresh = answer()
                known.update(zip(map(_key, missing), fresh, strict=True))
                _keep(file, dict(_on_disk(file)) | known)
            said = {program: known[_key(program)] for program in responses}
            return {p: replace(told, program=p if told.program else "") for p, told in said.items()}

        return answered


def _submit(judge: Environment, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
    if isinstance(judge, AsyncEnvironment):
        return judge.submit(submissions)
    return lambda: judge.judge(submissions)


def _keep(file: Path, known: Mapping[str, Judgement]) -> None:
    kept = {
        key: asdict(judgement) | {"program": bool(judgement.program)}
        for key, judgement in known.items()
        if judgement.verdict is not Verdict.INFRA_ERROR
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(kept))


def _on_disk(file: Path) -> Iterator[tuple[str, Judgement]]:
    """What is kept; a file that is missing or broken keeps nothing."""
    with suppress(FileNotFoundError, json.JSONDecodeError):
        for key, held in json.loads(file.read_text()).items():
            yield key, Judgement(**held | {"verdict": Verdict(held["verdict"])})


def _key(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:24]


# What judging other writers' programs has cost: charged to each run that trains on them. An
# earlier run or the cache on disk may have paid for it; it is charged again, once for each
# program, so that equal runs cost the same. The writing of them is charged to nobody.


class JudgingCosts:
    """Takes programs into the budget when they are first used."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.stats = ledger, JudgeStats()
        self._known: dict[str, None] = {}

    def charge(self, samples: Iterable[Sample]) -> None:
        """A response without a program cost nothing, equal programs were run once."""
        for sample in samples:
            judgement = sample.judgement
            key = _judgement_key(sample)
            if not judgement.program or key in self._known:
                continue
            self._known[key] = None
            self.ledger.counts.replayed_programs += 1
            self.stats.programs_judged += 1
            self.stats.tests_run += judgement.run
            self.stats.cpu_s += judgement.cpu_s

    def state_dict(self) -> dict[str, Any]:
        """What was charged, and for which programs."""
        return {"stats": asdict(self.stats), "known": list(self._known)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.stats, self._known = JudgeStats(**state["stats"]), dict.fromkeys(state["known"])


def _judgement_key(sample: Sample) -> str:
    known = (sample.prompt.problem.name, sample.judgement.program)
    return hashlib.sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()[:16]
