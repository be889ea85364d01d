"""What judging other writers' programs has cost: charged to each run that trains on them.

An earlier run or the cache on disk may have paid for it; it is charged again, once for each
program, so that equal runs cost the same. The writing of them is charged to nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from envs.environment import JudgeStats
from experiments.runs.ledger import Ledger
from experiments.samples.sample import Sample


class Charges:
    """Takes programs into the budget when they are first used."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.stats = ledger, JudgeStats()
        self._known: dict[str, None] = {}

    def charge(self, samples: Iterable[Sample]) -> None:
        """A response without a program cost nothing, equal programs were run once."""
        for sample in samples:
            judgement = sample.judgement
            key = _key(sample)
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


def _key(sample: Sample) -> str:
    known = (sample.prompt.problem.name, sample.judgement.program)
    return hashlib.sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()[:16]
