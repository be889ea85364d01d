"""Judgements of programs that a run did not generate: cached on disk, and charged to the run.

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

from envs.caching import replace_file
from envs.problem import (
    AsyncEnvironment,
    Environment,
    Judgement,
    JudgeStats,
    Problem,
    Submission,
    Verdict,
)
from experiments.run_dir.ledger import Ledger
from experiments.sample import Sample


class JudgementCache:
    """Judge programs that are not cached.

    Infrastructure errors and verdicts that wall time decided are not cached.
    """

    def __init__(self, folder: Path, judge: Environment, ledger: Ledger) -> None:
        self.folder, self.judge, self.ledger = folder / judge.version, judge, ledger

    def submit(
        self, problem: Problem, responses: Mapping[str, str]
    ) -> Callable[[], dict[str, Judgement]]:
        """Start judging if the judge works in other processes.

        `responses`: by program, which names each on disk. Returns a function that waits for the
        judgement of each program.
        """
        file = self.folder / f"{problem.hash}.json"
        cached = dict(_read(file))
        missing = [program for program in responses if _key(program) not in cached]
        submissions = [Submission(problem, responses[program]) for program in missing]
        pending: Callable[[], list[Judgement]] = lambda: self.judge.judge(submissions)  # noqa: E731
        if missing and isinstance(self.judge, AsyncEnvironment):
            pending = self.judge.submit(submissions)

        def wait() -> dict[str, Judgement]:
            if missing:
                with self.ledger.phase("judge"):
                    fresh = pending()
                cached.update(zip(map(_key, missing), fresh, strict=True))
                _write(file, dict(_read(file)) | cached)
            judgements = {program: cached[_key(program)] for program in responses}
            return {
                program: replace(judgement, program=program if judgement.program else "")
                for program, judgement in judgements.items()
            }

        return wait


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


def _key(text: str, length: int = 24) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


class JudgingCosts:
    """Charge a run for judging programs that it did not generate.

    Another run or the cache on disk may have paid already. Each program is charged again, once, so
    that equal runs cost the same. Its generation is charged to nobody.
    """

    def __init__(self, ledger: Ledger, count: str) -> None:
        """`count`: the ledger's count of such programs."""
        self.ledger, self.count, self.stats = ledger, count, JudgeStats()
        self._charged: dict[str, None] = {}  # in order of their first use

    def charge(self, key: str, judgements: Sequence[Judgement]) -> bool:
        """Charge the judgements behind a key once; return whether they are new."""
        if key in self._charged:
            return False
        self._charged[key] = None
        counts, stats = self.ledger.counts, self.stats
        setattr(counts, self.count, getattr(counts, self.count) + len(judgements))
        stats.infra_errors += sum(one.verdict is Verdict.INFRA_ERROR for one in judgements)
        stats.programs_judged += len(judgements)
        stats.tests_run += sum(one.run for one in judgements)
        stats.cpu_s += sum(one.cpu_s for one in judgements)
        return True

    def charge_samples(self, samples: Iterable[Sample]) -> None:
        """Charge each new program of these samples; a response without one costs nothing."""
        for sample in samples:
            if program := sample.judgement.program:
                key = _key(repr((sample.prompt.problem.name, program)), 16)
                self.charge(key, [sample.judgement])

    def state_dict(self) -> dict[str, Any]:
        """Return the costs, and the keys they are for."""
        return {"stats": asdict(self.stats), "charged": list(self._charged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.stats, self._charged = JudgeStats(**state["stats"]), dict.fromkeys(state["charged"])
