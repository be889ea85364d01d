"""Program files: JSON lines of programs from another model, a source of the replay buffer.

docs/reference/replay.md gives the format. The lines of a problem are judged when its prompt first
comes, once for all runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.judge.extract import extract_program
from envs.problem import Verdict
from envs.reward import RewardConfig
from experiments.errors import UserError
from experiments.replay.judgement_cache import JudgementCache
from experiments.replay.offline_programs import encode_response
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KINDS = ("program", "response", "tokens")  # a line has exactly one of them


class ProgramFile:
    """One file. Lines are checked at the start and read again when they are needed."""

    def __init__(
        self,
        path: Path,
        *,
        judgement_cache: JudgementCache,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardConfig,
        max_tokens: int,
        format_response: Callable[[str], str],
        needs_logps: bool,
    ) -> None:
        """`needs_logps`: whether the algorithm needs behaviour log-probs.

        Raises UserError, which names the line, if one is malformed.
        """
        self.path, self.judgement_cache, self.tokenizer = path, judgement_cache, tokenizer
        self.reward, self.max_tokens, self.format_response = reward, max_tokens, format_response
        self.needs_logps = needs_logps
        self.left_out: Counter[str] = Counter()
        self._offsets: dict[str, list[int]] = defaultdict(list)  # problem → offsets of its lines
        sha, offset = hashlib.sha256(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self._offsets[self._parse(line, number)["problem"]].append(offset)
                offset += len(line)
                sha.update(line)
        self.digest = sha.hexdigest()[:16]

    def __str__(self) -> str:
        return f"replay.files=[{self.path}]"

    @property
    def problems(self) -> dict[str, int]:
        """The number of programs for each problem, by name."""
        return {name: len(offsets) for name, offsets in self._offsets.items()}

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Return the samples of one problem, in the order of their lines."""
        own_prompt = list(prompt.tokens)
        usable: list[tuple[str, tuple[int, ...], tuple[float, ...] | None]] = []
        for row in self._rows(prompt.problem.name):
            tokens, logps = self._tokens(row), row.get("logprobs")
            if len(tokens) > self.max_tokens:
                self.left_out["over task.max_response_tokens"] += 1
            elif logps is not None and len(logps) != len(tokens):
                self.left_out[f"log-probs for other tokens than this model's ({len(tokens)})"] += 1
            elif logps is not None and row.get("prompt", own_prompt) != own_prompt:
                self.left_out["log-probs after another prompt than this run's"] += 1
            else:
                logps = None if logps is None else tuple(map(float, logps))
                usable.append((self._text(row, tokens), tokens, logps))
        responses = {_cache_key(text): text for text, _, _ in usable}
        judgements = self.judgement_cache.judgements_of(prompt.problem, responses)
        samples = []
        for text, tokens, logps in usable:
            judgement = judgements[_cache_key(text)]
            if judgement.verdict is Verdict.INFRA_ERROR:
                self.left_out["the judge failed"] += 1
                continue
            program = (extract_program(text) or text) if judgement.program else ""
            judgement = replace(judgement, program=program)
            samples.append(
                Sample(
                    prompt,
                    tokens,
                    logps,
                    judgement,
                    reward=compute_reward(judgement, self.reward, len(tokens)),
                    truncated=False,
                    origin=Origin("file", self.path.name),
                )
            )
        return samples

    def _rows(self, problem: str) -> list[dict[str, Any]]:
        if problem not in self._offsets:
            return []
        with self.path.open("rb") as file:
            rows = []
            for offset in self._offsets[problem]:
                file.seek(offset)
                rows.append(json.loads(file.readline()))
        return rows

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        where = f"{self}: line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        kinds = [kind for kind in KINDS if isinstance(row, dict) and kind in row]
        if len(kinds) != 1 or not isinstance(row.get("problem"), str):
            raise UserError(
                f'{where}: write {{"problem": NAME, "program": TEXT}}, or "response" or "tokens" '
                "for the program; see docs/reference/replay.md"
            )
        fault = _fault(kinds[0], row[kinds[0]], row.get("logprobs"), len(self.tokenizer))
        if not fault and "prompt" in row and not _are_ids(row["prompt"]):
            fault = '"prompt" must be a list of whole numbers'
        if fault:
            raise UserError(f"{where}: {fault}")
        if row.get("logprobs") is None and self.needs_logps:
            raise UserError(
                f"{where} has no logprobs, which this algorithm needs for its importance ratio; "
                "add them, set train.missing_logprobs=reference or =recomputed if the algorithm "
                "has a ratio, or choose an algorithm that learns from any source (`python -m "
                "algorithms` lists them)"
            )
        return row

    def _tokens(self, row: dict[str, Any]) -> tuple[int, ...]:
        if "tokens" in row:
            return tuple(row["tokens"])
        return encode_response(self._text(row, ()), self.tokenizer)

    def _text(self, row: dict[str, Any], tokens: tuple[int, ...]) -> str:
        if "tokens" in row:
            return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))
        return row["response"] if "response" in row else self.format_response(row["program"])


def _fault(kind: str, value: object, logps: object, vocabulary: int) -> str | None:
    """Return what is wrong with a line's values; None if nothing is."""
    if kind == "tokens":
        if not isinstance(value, list) or not _are_ids(value):
            return '"tokens" must be a list of whole numbers'
        if outside := [token for token in value if not 0 <= token < vocabulary]:
            return f"token {outside[0]} is not one of the tokenizer's {vocabulary:,} tokens"
    elif not isinstance(value, str):
        return f'"{kind}" must be a text'
    elif any("\ud800" <= letter <= "\udfff" for letter in value):
        return f'"{kind}" contains half a character (a lone surrogate)'
    if logps is None:
        return None
    if not isinstance(logps, list) or not all(type(logp) in (int, float) for logp in logps):
        return '"logprobs" must be a list of numbers, one for each token'
    if invalid := [logp for logp in logps if not -math.inf < logp <= 0]:  # NaN too
        return f"log-prob {invalid[0]} is not the logarithm of a probability above 0"
    return None


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _cache_key(text: str) -> str:
    """Return a key that no program of the data set has: those are cached by their text alone."""
    return f"response\n{text}"
