"""Observations in tokens: what a model reads between two answers of a conversation.

The sampled tokens of an answer are never decoded and encoded again: the observation's tokens are
put behind them. They are those of the model's chat template between two answers, which closes the
answer, opens the user's turn, and opens the next answer. In it stands a text that a program may
have printed. It is encoded without special tokens, so it can neither close a turn nor speak as
another role.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ANSWER, OBSERVATION = "\u241fanswer\u241f", "\u241fobservation\u241f"  # in no chat template
PLAIN = "\n\n"  # between texts without a chat template
LEAST_TEXT = 16  # tokens that must be left for an observation's text


class ObservationEncoder:
    """Encodes observations. Those of a model's template are found once."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        chat: bool,
        chat_args: Mapping[str, Any],
        max_tokens: int,
        key: str = "task.turns",
    ) -> None:
        """`max_tokens`: of an observation, the template's tokens included; `key`: of the turns.

        Raises UserError if the template has no place for one, or leaves no space for its text.
        """
        self.tokenizer, self.chat_args, self.max_tokens = tokenizer, chat_args, max_tokens
        self.key = key
        between, after = self._template() if chat else (PLAIN, PLAIN)
        end = str(tokenizer.eos_token or "")
        # An answer that ended has its end token; one that was cut off gets the template's.
        self._opening = {
            False: self._ids(between.removeprefix(end) if end else between),
            True: self._ids(between),
        }
        self._closing = self._ids(after)
        self._markers = self._plain_markers(between + after)
        self.space = max_tokens - len(self._opening[True]) - len(self._closing)
        if self.space < LEAST_TEXT:
            raise UserError(
                f"task.max_observation_tokens={max_tokens}: the model's chat template takes "
                f"{max_tokens - self.space} of them; set {max_tokens - self.space + LEAST_TEXT} "
                "or more"
            )

    @property
    def digest(self) -> str:
        """16 hex digits over what stands around a text, and the most tokens of both."""
        content = (self._opening, self._closing, self.max_tokens)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]

    def fits(self, text: str) -> bool:
        """Whether the whole text can be read."""
        return len(self._untrusted(text)) <= self.space

    def encode(self, text: str, cut_off: bool) -> tuple[list[int], str]:
        """Return an observation's tokens and the text that it shows.

        `cut_off`: whether the answer before it has no end token. Of a text that is too long the
        middle is left out.
        """
        ids = self._untrusted(text)
        if len(ids) > self.space:
            end = self.space // 2
            ids = ids[: self.space - end] + ids[-end:]
            text = str(self.tokenizer.decode(ids))
        return [*self._opening[cut_off], *ids, *self._closing], text

    def _template(self) -> tuple[str, str]:
        """Return the template's text between an answer and an observation, and behind that."""
        messages = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": OBSERVATION},
        ]
        try:
            text = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False, **self.chat_args
            )
        except Exception as error:  # a template may raise anything, as on a second turn
            reason = " ".join(str(error).split())
            raise UserError(
                f"{self.key}: the model's chat template fails on a second message: {reason}; set "
                f"{self.key}=1, or task.chat=false"
            ) from error
        _, found, rest = str(text).rpartition(ANSWER)
        between, placed, after = rest.partition(OBSERVATION)
        if not (found and placed):
            raise UserError(
                f"{self.key}: the model's chat template does not show an answer and the message "
                f"after it; set {self.key}=1, or task.chat=false"
            )
        return between, after

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def _untrusted(self, text: str) -> list[int]:
        """Encode a text so that no token of it is one that the tokenizer adds to its vocabulary.

        A text is split within each of these tokens' texts, which a blank breaks up.
        """
        for pattern in (self._added, self._markers):
            text = pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return [i for i in encoded["input_ids"] if i not in self._controls]

    @cached_property
    def _controls(self) -> dict[int, str]:
        """Tokens that the tokenizer adds to its vocabulary; some add runs of blanks, too."""
        added = self.tokenizer.added_tokens_decoder.items()
        return {i: str(token) for i, token in added if len(str(token).strip()) > 1}

    @cached_property
    def _added(self) -> re.Pattern[str]:
        return _any_of(self._controls.values())

    def _plain_markers(self, template: str) -> re.Pattern[str]:
        """Return what finds a template's marks of roles, if they are no special tokens."""
        if self._added.search(template):
            return _any_of(())
        return _any_of(line.strip() for line in template.splitlines())


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return what finds any of these texts of two characters or more, longer ones first."""
    known = sorted({text for text in texts if len(text) > 1}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, known)) or r"(?!)")
