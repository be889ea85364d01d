"""A response of the batch as a person reads it: what the policy writes, and what the judge says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envs.readable import readable
from experiments.sample import Sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_LINES, MAX_WIDTH = 12, 96


def sample_lines(
    step: int, samples: Sequence[Sample], tokenizer: PreTrainedTokenizerBase
) -> list[str]:
    """Show the first accepted fresh response, else the first one; nothing if there is none.

    The program if there is one, else the whole text, of a conversation that of its last answer;
    long ones are cut.
    """
    fresh = [sample for sample in samples if sample.fresh]
    if not fresh:
        return []
    sample = next((sample for sample in fresh if sample.accepted), fresh[0])
    judgement = sample.judgement
    facts = [str(judgement.verdict), f"reward {sample.reward:g}", f"{sample.generated} tokens"]
    answers, last = len(sample.turns), len(sample.tokens)
    if answers > 1:
        facts[-1] += f" in {answers} answers, of which this is the last"
        last = sample.turns[-1].answer
    if sample.truncated:
        facts.append("cut off")
    text = judgement.program
    if not text:
        text = str(tokenizer.decode(list(sample.tokens[-last:]), skip_special_tokens=True))
    lines = [readable(line[:MAX_WIDTH]) for line in text.split("\n")]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines"]
    head = f"step {step}, a response to {sample.prompt.problem.name}: {', '.join(facts)}"
    return [head, *(f"    {line}" for line in lines)]
