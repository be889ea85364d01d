"""Programs that another model wrote: JSON lines, as docs/reference/replay.md tells, a source of the replay.

They are judged when their problem's prompt first comes, once for all runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from envs.judge.extract import extract_program
from envs.problem import Verdict
from envs.reward import RewardConfig
from experiments.errors import UserError
from experiments.replay.judgement_cache import JudgementCache
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward

KINDS = ("program", "response", "tokens")  # of which a line has one


class ProgramFile:
    """One file; its lines are read again when they are needed."""

    def __init__(
        self,
        path: Path,
        judgement_cache: JudgementCache,
        tokenizer: object,
        reward: RewardConfig,
        max_tokens: int,
        format_response: Callable[[str], str],
        needs_logps: bool,
    ) -> None:
        """`needs_logps`: what learns from them cannot do without their writer's log-probs.

        Raises UserError, which names the line, where one is not what it should be.
        """
        self.path, self.judgement_cache, self.tokenizer, self.reward = (
            path,
            judgements,
            tokenizer,
            reward,
        )
        self.max_tokens, self.format_response = max_tokens, format_response
        self.needs_logps = needs_logps
        self.left_out: Counter[str] = Counter()
        self._lines: dict[str, list[int]] = defaultdict(list)  # problem → where its lines begin
        digest, at = hashlib.sha256(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self._lines[self._checked(line, number)["problem"]].append(at)
                at += len(line)
                digest.update(line)
        self.digest = digest.hexdigest()[:16]

    def __str__(self) -> str:
        return f"replay.files=[{self.path}]"

    @property
    def problems(self) -> dict[str, int]:
        """Name of each problem that it has programs for → how many."""
        return {name: len(lines) for name, lines in self._lines.items()}

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Those of one problem, in the order of their lines."""
        found = []
        for row in self._rows(prompt.problem.name):
            tokens, logps = self._tokens(row), row.get("logprobs")
            if len(tokens) > self.max_tokens:
                self.left_out["over task.max_response_tokens"] += 1
            elif logps is not None and len(logps) != len(tokens):
                self.left_out[f"log-probs of other tokens than this model's ({len(tokens)})"] += 1
            else:
                found.append((row, tokens, None if logps is None else tuple(map(float, logps))))
        texts = [self._text(row, tokens) for row, tokens, _ in found]
        judgements = self.judgement_cache.judgements_of(
            prompt.problem, {_key(text): text for text in texts}
        )
        samples = []
        for (_, tokens, logps), text in zip(found, texts, strict=True):
            judgement = judgements[_key(text)]
            if judgement.verdict is Verdict.INFRA_ERROR:
                self.left_out["the judge failed"] += 1
                continue
            program = (extract_program(text) or text) if judgement.program else ""
            judgement = replace(judgement, program=program)
            origin = Origin("file", self.path.name)
            paid = compute_reward(judgement, self.reward, len(tokens))
            samples.append(Sample(prompt, tokens, logps, judgement, paid, False, origin))
        return samples

    def _rows(self, problem: str) -> list[dict[str, object]]:
        if problem not in self._lines:
            return []
        with self.path.open("rb") as file:
            rows = []
            for at in self._lines[problem]:
                file.seek(at)
                rows.append(json.loads(file.readline()))
        return rows

    def _checked(self, line: bytes, number: int) -> dict[str, object]:
        where = f"{self}: line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where} is no JSON: {error}") from error
        kinds = [kind for kind in KINDS if isinstance(row, dict) and kind in row]
        if len(kinds) != 1 or not isinstance(row.get("problem"), str):
            raise UserError(
                f'{where}: write {{"problem": NAME, "program": TEXT}}, or "response" or "tokens" '
                "for the program; docs/reference/replay.md tells"
            )
        if wrong := _wrong(kinds[0], row[kinds[0]], row.get("logprobs"), len(self.tokenizer)):
            raise UserError(f"{where}: {wrong}")
        if row.get("logprobs") is None and self.needs_logps:
            raise UserError(
                f"{where} has no logprobs, and this algorithm takes the ratio to who wrote a "
                "response; give them, or choose train.missing_logprobs=reference or =recomputed "
                "where there is a ratio, or an algorithm that `python -m algorithms` says learns "
                "from anyone"
            )
        return row

    def _tokens(self, row: dict[str, object]) -> tuple[int, ...]:
        if "tokens" in row:
            return tuple(row["tokens"])
        ids = self.tokenizer(self._text(row, ()), add_special_tokens=False)["input_ids"]
        return (*ids, self.tokenizer.eos_token_id)

    def _text(self, row: dict[str, object], tokens: tuple[int, ...]) -> str:
        if "tokens" in row:
            return self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return row["response"] if "response" in row else self.format_response(row["program"])


def _wrong(kind: str, value: object, logps: object, vocabulary: int) -> str | None:
    """What a line holds that it cannot hold; None where all is well."""
    if kind == "tokens":
        if not isinstance(value, list) or not all(type(token) is int for token in value):
            return '"tokens" must be a list of whole numbers'
        if outside := [token for token in value if not 0 <= token < vocabulary]:
            return f"token {outside[0]} is none of the tokenizer's {vocabulary:,}"
    elif not isinstance(value, str):
        return f'"{kind}" must be a text'
    elif any("\ud800" <= letter <= "\udfff" for letter in value):
        return f'"{kind}" holds half a character (a lone surrogate)'
    if logps is None:
        return None
    if not isinstance(logps, list) or not all(type(one) in (int, float) for one in logps):
        return '"logprobs" must be a list of numbers, one for each token'
    if wrong := [one for one in logps if not -math.inf < one <= 0]:  # NaN too
        return f"log-prob {wrong[0]} is not the logarithm of a probability above 0"
    return None


def _key(text: str) -> str:
    """Apart from the data set's programs, which are known by their text alone."""
    return f"response\n{text}"
