"""Judgements of programs that a run did not generate, cached on disk, and the costs it is charged.

Such programs come from the data set, from earlier runs or from files. Each is judged once for all
runs that share the cache.
"""

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
    """Judge programs that are not cached.

    Infrastructure errors and verdicts that wall time decided are not cached.
    """

    def __init__(self, folder: Path, judge: Environment, ledger: Ledger) -> None:
        self.folder, self.judge, self.ledger = folder / judge.version, judge, ledger

    def judgements_of(self, problem: Problem, responses: Mapping[str, str]) -> dict[str, Judgement]:
        """Return the judgement of each response; the keys (programs) name them on disk."""
        return self.submit(problem, responses)()

    def submit(
        self, problem: Problem, responses: Mapping[str, str]
    ) -> Callable[[], dict[str, Judgement]]:
        """Start judging if the judge works in other processes; return a function that waits."""
        file = self.folder / f"{problem.hash}.json"
        cached = dict(_read(file))
        missing = [program for program in responses if _program_key(program) not in cached]
        submissions = [Submission(problem, responses[program]) for program in missing]
        pending = _submit(self.judge, submissions) if missing else None

        def wait() -> dict[str, Judgement]:
            if pending is not None:
                with self.ledger.phase("judge"):
                    fresh = pending()
                cached.update(zip(map(_program_key, missing), fresh, strict=True))
                _write(file, dict(_read(file)) | cached)
            judgements = {program: cached[_program_key(program)] for program in responses}
            return {
                program: replace(judgement, program=program if judgement.program else "")
                for program, judgement in judgements.items()
            }

        return wait


def _submit(judge: Environment, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
    if isinstance(judge, AsyncEnvironment):
        return judge.submit(submissions)
    return lambda: judge.judge(submissions)


def _write(file: Path, judgements: Mapping[str, Judgement]) -> None:
    stored = {
        key: asdict(judgement) | {"program": bool(judgement.program)}
        for key, judgement in judgements.items()
        if judgement.verdict is not Verdict.INFRA_ERROR and not judgement.by_wall_time
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(stored))


def _read(file: Path) -> Iterator[tuple[str, Judgement]]:
    """Yield (key, judgement); nothing if the file is missing or broken."""
    with suppress(FileNotFoundError, json.JSONDecodeError):
        for key, fields in json.loads(file.read_text()).items():
            yield key, Judgement(**fields | {"verdict": Verdict(fields["verdict"])})


def _program_key(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class JudgingCosts:
    """Charge a run for judging the replayed programs that it trains on.

    An earlier run or the cache on disk may have paid already. Each program is charged again, once,
    so that equal runs cost the same. Its generation is charged to nobody.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.stats = ledger, JudgeStats()
        self._charged: dict[str, None] = {}  # keys in order of their first use

    def charge(self, samples: Iterable[Sample]) -> None:
        """Charge each new program once. A response without a program costs nothing."""
        for sample in samples:
            judgement = sample.judgement
            key = _sample_key(sample)
            if not judgement.program or key in self._charged:
                continue
            self._charged[key] = None
            self.ledger.counts.replayed_programs += 1
            self.stats.programs_judged += 1
            self.stats.tests_run += judgement.run
            self.stats.cpu_s += judgement.cpu_s

    def state_dict(self) -> dict[str, Any]:
        """Return the costs, and the programs they are for."""
        return {"stats": asdict(self.stats), "known": list(self._charged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.stats, self._charged = JudgeStats(**state["stats"]), dict.fromkeys(state["known"])


def _sample_key(sample: Sample) -> str:
    text = repr((sample.prompt.problem.name, sample.judgement.program))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
