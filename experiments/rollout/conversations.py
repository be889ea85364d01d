"""Conversations: an answer, what the public tests say of it, and another answer.

A conversation ends when an answer passes the tests that its problem's statement shows, or after
`turns` answers. Its last answer alone is judged by the hidden tests. With one turn nothing is
observed.

A large batch is cut into parts, one after the other. Parts depend on counts and never on time. An
answer depends on its seed and its context alone, up to the rounding of its neighbours in a batch
and of what the engine keeps, so the same conversation is generated again to the same bits.

The sampled tokens of an answer are never decoded and encoded again: the observation's tokens are
put behind them. They are those of the model's chat template between two answers, which closes the
answer, opens the user's turn, and opens the next answer. In it stands a text that a program may
have printed. It is encoded without special tokens, so it can neither close a turn nor speak as
another role.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.judge.extract import as_response
from envs.problem import Judgement, Problem, Submission, Verdict
from envs.tasks.prompts import MAX_PIECE_CHARS, Feedback
from experiments.config.schema import RunConfig
from experiments.engines.base import Request, Sampling
from experiments.errors import UserError
from experiments.run_dir.ledger import Text
from experiments.sample import Completion, PromptedProblem, Sample, Turn, seed_for

# of each text that an observation quotes: the first with which it fits
PIECE_CHARS = (MAX_PIECE_CHARS, 150, 75, 40)

Awaited = Callable[[], list[Judgement]]  # waits for judgements
# (request, problem that judges each answer) → answers, flat, and their judgements
Answering = Callable[[Request, Sequence[Problem]], tuple[list[Completion], Awaited]]


@dataclass(frozen=True)
class Dialogue:
    """How a conversation continues after a failed answer."""

    turns: int  # most answers
    feedback: Feedback
    withheld: Feedback  # where there is no foreign program
    encoder: ObservationEncoder
    part: int | None = None  # conversations that answer at once, about; None: all

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the observations, for keys of caches."""
        kind, digest = self.feedback.kind, self.feedback.digest
        return self.turns, kind, digest, self.encoder.max_tokens

    @property
    def digest(self) -> str:
        """16 hex digits over the texts of observations."""
        text = f"{self.feedback.digest} {self.encoder.digest}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def dialogue_of(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, turns: int, engines: int
) -> Dialogue | None:
    """Return what conversations of so many turns need; None for one. Raises UserError.

    `engines`: how many share a batch.
    """
    if turns == 1:
        return None
    task = config.task
    try:
        path = Path(task.feedback_prompt) if task.feedback_prompt else None
        feedback, withheld = Feedback(task.feedback, path), Feedback("withheld", path)
    except ValueError as error:
        raise UserError(str(error)) from error
    key, longest = "task.turns" if task.turns > 1 else "eval.turns", task.max_observation_tokens
    encoder = ObservationEncoder(tokenizer, task.chat, config.model.chat_args, longest, key)
    # vLLM fills places as they get free, whatever it is given at once. A foreign program is sought
    # in the whole batch, so that no observation depends on the sizes of parts.
    whole = config.engine.name != "hf" or task.feedback == "foreign"
    part = None if whole else config.engine.batch_size * engines
    return Dialogue(turns, feedback, withheld, encoder, part)


@dataclass
class Conversation:
    """A conversation so far."""

    prompt: PromptedProblem
    seed: int
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    answers: list[Completion] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)  # of its answers
    ended: bool = False

    def seed_of(self, turn: int) -> int:
        """Return the seed of an answer; the first has that of a response of one answer."""
        return self.seed if turn == 1 else seed_for(self.seed, "turn", turn)

    def answer(self, completion: Completion, judgement: Judgement) -> None:
        """Add an answer and its judgement."""
        self.tokens += completion.tokens
        self.logps += completion.logps
        self.answers.append(completion)
        self.judgements.append(judgement)

    def observe(self, tokens: Sequence[int], text: str) -> None:
        """Add what is observed after the last answer."""
        length, judgement = len(self.answers[-1].tokens), self.judgements[-1]
        self.turns.append(Turn(length, len(tokens), judgement, text))
        self.tokens += tokens
        self.logps += [0.0] * len(tokens)

    def end(self, public: Judgement | None = None) -> None:
        """Add the last turn. `public`: the judgement of its answer by the public tests."""
        self.turns.append(Turn(len(self.answers[-1].tokens), public=public))
        self.ended = True

    @property
    def completion(self) -> Completion:
        """The whole conversation as one response; observed tokens have a log-prob of 0."""
        last, tokens, logps = self.answers[-1], tuple(self.tokens), tuple(self.logps)
        entropies = [one.entropy * len(one.tokens) for one in self.answers]
        entropy = sum(entropies) / sum(len(one.tokens) for one in self.answers)
        return Completion(tokens, logps, entropy, last.truncated, last.version)


def converse(
    dialogue: Dialogue,
    prompts: Sequence[PromptedProblem],
    seeds: Sequence[Sequence[int]],
    sampling: Sampling,
    answering: Answering,
    judge: Callable[[Sequence[Submission]], Awaited],
    release: Callable[[], None],
) -> list[Conversation]:
    """Return len(seeds[i]) conversations on each prompt, flat, their last answers judged.

    `judge` judges by the hidden tests what passed the public ones. `release` releases what the
    engine keeps of a part.
    """
    groups = [
        [Conversation(prompt, seed) for seed in group]
        for prompt, group in zip(prompts, seeds, strict=True)
    ]
    for part in _parts(groups, dialogue.part):
        passed: list[tuple[list[Conversation], Awaited]] = []
        open_groups: Sequence[Sequence[Conversation]] = part
        part_prompts = [group[0].prompt.tokens if group else () for group in part]
        for turn in range(1, dialogue.turns + 1):
            found = _answer(dialogue, part_prompts, open_groups, turn, sampling, answering)
            if found:  # judged by the hidden tests while others answer again
                submissions = [
                    Submission(one.prompt.problem, as_response(one.judgements[-1].program))
                    for one in found
                ]
                passed.append((found, judge(submissions)))
            open_groups = [[one for one in group if not one.ended] for group in open_groups]
            further = [one for group in open_groups for one in group]
            _observe(dialogue, further)
            if not further:
                break
        for conversations, judgements in passed:
            for one, judgement in zip(conversations, judgements(), strict=True):
                one.judgements[-1] = judgement
        release()
    return [one for group in groups for one in group]


def _parts(
    groups: Sequence[list[Conversation]], size: int | None
) -> list[list[list[Conversation]]]:
    """Cut into parts of at most `size` conversations, or of one group; None: one part."""
    parts: list[list[list[Conversation]]] = [[]]
    count = 0
    for group in groups:
        if size is not None and count and count + len(group) > size:
            parts.append([])
            count = 0
        parts[-1].append(group)
        count += len(group)
    return parts


def _answer(
    dialogue: Dialogue,
    prompts: Sequence[Sequence[int]],
    groups: Sequence[Sequence[Conversation]],
    turn: int,
    sampling: Sampling,
    answering: Answering,
) -> list[Conversation]:
    """Add an answer to each conversation and end those that need no other.

    Returns those that passed the public tests: the hidden tests have to judge them.
    """
    going, more = [one for group in groups for one in group], turn < dialogue.turns
    public = [dialogue.feedback.public(one.prompt.problem) if more else None for one in going]
    problems = [tests or one.prompt.problem for one, tests in zip(going, public, strict=True)]
    request = Request(
        prompts,
        seeds=[[one.seed_of(turn) for one in group] for group in groups],
        sampling=sampling,
        begun=[[tuple(one.tokens) for one in group] for group in groups] if turn > 1 else None,
        # All foreign conversations are one part, whose keys and values may be too many to keep.
        keep=more and dialogue.feedback.kind != "foreign",
    )
    answers, judgements = answering(request, problems)
    passed = []
    for one, tests, answer, judgement in zip(going, public, answers, judgements(), strict=True):
        one.answer(answer, judgement)
        if tests is None or tests is one.prompt.problem or judgement.verdict is Verdict.INFRA_ERROR:
            one.end()
        elif judgement.verdict is Verdict.ACCEPTED:
            one.end(judgement)
            passed.append(one)
    return passed


def _observe(dialogue: Dialogue, failed: Sequence[Conversation]) -> None:
    """Add to each conversation the observation on its last answer, or on a foreign one."""
    texts = []
    for number, one in enumerate(failed):
        source, feedback = one, dialogue.feedback
        if feedback.kind == "foreign":
            others = (*failed[number + 1 :], *failed[:number])
            name = one.prompt.problem.name
            found = (other for other in others if other.prompt.problem.name != name)
            foreign = next(found, None)
            source, feedback = (foreign, feedback) if foreign else (one, dialogue.withheld)
        problem, judgement = source.prompt.problem, source.judgements[-1]
        texts.append(observation_text(dialogue.encoder, feedback, problem, judgement))
    for one, text in zip(failed, texts, strict=True):
        one.observe(*dialogue.encoder.encode(text, cut_off=one.answers[-1].truncated))


def observation_text(
    encoder: ObservationEncoder, feedback: Feedback, problem: Problem, judgement: Judgement
) -> str:
    """Return the observation with its quoted texts as long as fit."""
    text = ""
    for chars in PIECE_CHARS:
        try:
            text = feedback.observation(problem, judgement, chars)
        except ValueError as error:  # of a template of the user's
            raise UserError(str(error)) from error
        if encoder.fits(text):
            break
    return text


def turns_of(sample: Sample) -> Sequence[Turn]:
    """Return a sample's turns: one for a response that is no conversation."""
    return sample.turns or (Turn(len(sample.tokens)),)


def generation_texts(
    prompts: Sequence[int], groups: Sequence[Sequence[Sequence[Turn]]]
) -> list[Text]:
    """Return the lengths that were read and generated, for their operations.

    `prompts`: their lengths; `groups`: the turns of each response to each of them. A prompt is read
    once for its first answers. For each later one a conversation is read on from the last token
    that was sampled.
    """
    texts = []
    for prompt, group in zip(prompts, groups, strict=True):
        if group:
            texts.append(Text(prompt, [turns[0].answer for turns in group]))
        for turns in group:
            context = prompt
            for turn, following in pairwise(turns):
                known = context + turn.answer - 1
                context += turn.answer + turn.observation
                texts.append(Text(context, [following.answer], known))
    return texts


ANSWER, OBSERVATION = "\u241fanswer\u241f", "\u241fobservation\u241f"  # in no chat template
PLAIN = "\n\n"  # between texts without a chat template
LEAST_TEXT = 16  # tokens that must be left for an observation's text


@dataclass(eq=False)
class ObservationEncoder:
    """Encodes observations. Those of a model's template are found once.

    Raises UserError if the template has no place for one, or leaves no space for its text.
    """

    tokenizer: PreTrainedTokenizerBase
    chat: bool
    chat_args: Mapping[str, Any]
    max_tokens: int  # of an observation, the template's tokens included
    key: str = "task.turns"  # of the turns

    def __post_init__(self) -> None:
        tokenizer, max_tokens = self.tokenizer, self.max_tokens
        between, after = self._template() if self.chat else (PLAIN, PLAIN)
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
