"""Conversations: an answer, what the public tests say of it, and another answer.

A conversation ends when an answer passes the tests that its problem's statement shows, or after
`turns` answers. Its last answer alone is judged by the hidden tests. With one turn nothing is
observed. Neither the judge nor the order of its submissions depends on time, and an answer depends
on its seed and its context alone, up to the rounding of its neighbours in a batch. So the same
conversation is made again to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from envs.environment import Environment, Submission
from envs.feedback import MAX_PIECE_CHARS, Feedback
from envs.judge.extract import as_response
from envs.problem import Judgement, Problem, Verdict
from experiments.engines.base import Completion
from experiments.errors import UserError
from experiments.rollout.observations import ObservationEncoder
from experiments.run_dir.flops import Text
from experiments.sample import PromptedProblem, Sample, Turn
from experiments.seeds import seed_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig

# of each text that an observation quotes: the first with which it fits
PIECE_CHARS = (MAX_PIECE_CHARS, 150, 75, 40)

# Contexts, the seeds of the answers to each, and the problem that each answer is judged by → the
# answers and their judgements, flat
Answering = Callable[
    [Sequence[Sequence[int]], Sequence[Sequence[int]], Sequence[Problem]],
    tuple[list[Completion], list[Judgement]],
]


@dataclass(frozen=True)
class Dialogue:
    """How a conversation goes on after a failed answer."""

    turns: int  # most answers
    feedback: Feedback
    withheld: Feedback  # where there is no foreign program
    encoder: ObservationEncoder

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the observations, for keys of caches."""
        kind, digest = self.feedback.kind, self.feedback.digest
        return self.turns, kind, digest, self.encoder.max_tokens


def dialogue_of(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, turns: int
) -> Dialogue | None:
    """Return what conversations of so many turns need; None for one. Raises UserError."""
    if turns == 1:
        return None
    task = config.task
    try:
        path = Path(task.feedback_prompt) if task.feedback_prompt else None
        feedback, withheld = Feedback(task.feedback, path), Feedback("withheld", path)
    except ValueError as error:
        raise UserError(str(error)) from error
    encoder = ObservationEncoder(
        tokenizer, task.chat, config.model.chat_args, task.max_observation_tokens
    )
    return Dialogue(turns, feedback, withheld, encoder)


@dataclass
class Conversation:
    """A conversation so far."""

    prompt: PromptedProblem
    seed: int
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    answers: list[Completion] = field(default_factory=list)
    judgement: Judgement | None = None  # of the last answer, by the tests that judged it

    @property
    def context(self) -> tuple[int, ...]:
        return (*self.prompt.tokens, *self.tokens)

    @property
    def verdict(self) -> Verdict:
        assert self.judgement is not None, "no answer was judged"
        return self.judgement.verdict

    def answer(self, completion: Completion, judgement: Judgement) -> None:
        """Add an answer and its judgement."""
        self.tokens += completion.tokens
        self.logps += completion.logps
        self.answers.append(completion)
        self.judgement = judgement

    def observe(self, tokens: Sequence[int], text: str) -> None:
        """Add what is observed after the last answer."""
        self.turns.append(Turn(len(self.answers[-1].tokens), len(tokens), self.judgement, text))
        self.tokens += tokens
        self.logps += [0.0] * len(tokens)

    def end(self, public: Judgement | None) -> None:
        """Add the last turn. `public`: the judgement of its answer by the public tests."""
        self.turns.append(Turn(len(self.answers[-1].tokens), public=public))

    @property
    def completion(self) -> Completion:
        """The whole conversation as one response; observed tokens have a log-prob of 0."""
        entropies = [one.entropy * len(one.tokens) for one in self.answers]
        return Completion(
            tokens=tuple(self.tokens),
            logps=tuple(self.logps),
            entropy=sum(entropies) / sum(len(one.tokens) for one in self.answers),
            truncated=self.answers[-1].truncated,
            version=self.answers[-1].version,
        )


def converse(
    dialogue: Dialogue,
    prompts: Sequence[PromptedProblem],
    seeds: Sequence[Sequence[int]],
    answering: Answering,
    judge: Callable[[Sequence[Submission]], list[Judgement]],
    ended: Callable[[int], None],
) -> list[Conversation]:
    """Return len(seeds[i]) conversations on each prompt, flat, their last answers judged.

    `judge` judges by the hidden tests what passed the public ones. `ended` gets the number of
    conversations that have ended since it was called last.
    """
    every = [
        Conversation(p, seed) for p, group in zip(prompts, seeds, strict=True) for seed in group
    ]
    contexts, seed_groups = [prompt.tokens for prompt in prompts], seeds
    going = every
    for turn in range(1, dialogue.turns + 1):
        public = [_public(dialogue, one) if turn < dialogue.turns else None for one in going]
        judged_by = [
            one.prompt.problem if tests is None else tests
            for one, tests in zip(going, public, strict=True)
        ]
        answers, judgements = answering(contexts, seed_groups, judged_by)
        further, passed = [], []
        for one, tests, answer, found in zip(going, public, answers, judgements, strict=True):
            one.answer(answer, found)
            if tests is None or one.verdict is Verdict.INFRA_ERROR:
                one.end(None)
            elif one.verdict is Verdict.ACCEPTED:
                passed.append(one)
            else:
                further.append(one)
        _judge_finally(passed, judge)
        _observe(dialogue, further)
        ended(len(going) - len(further))
        going = further
        if not going:
            break
        contexts = [one.context for one in going]
        seed_groups = [[seed_for(one.seed, "turn", turn + 1)] for one in going]
    return every


def _public(dialogue: Dialogue, one: Conversation) -> Problem | None:
    return dialogue.feedback.public(one.prompt.problem)


def _judge_finally(
    passed: Sequence[Conversation],
    judge: Callable[[Sequence[Submission]], list[Judgement]],
) -> None:
    """Judge answers that passed the public tests by the hidden ones; they are the last ones."""
    if not passed:
        return
    submissions = [
        Submission(one.prompt.problem, as_response(one.judgement.program))
        for one in passed
        if one.judgement is not None
    ]
    for one, found in zip(passed, judge(submissions), strict=True):
        one.end(one.judgement)
        one.judgement = found


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
        assert source.judgement is not None
        texts.append(
            observation_text(dialogue.encoder, feedback, source.prompt.problem, source.judgement)
        )
    for one, text in zip(failed, texts, strict=True):
        one.observe(*dialogue.encoder.encode(text, cut_off=one.answers[-1].truncated))


def observation_text(
    encoder: ObservationEncoder, feedback: Feedback, problem: Problem, judgement: Judgement
) -> str:
    """Return the observation with its quoted texts as long as fit."""
    text = ""
    for chars in PIECE_CHARS:
        text = feedback.observation(problem, judgement, chars)
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
    once for its first answers, and a conversation once more for each later one.
    """
    texts = []
    for prompt, group in zip(prompts, groups, strict=True):
        if group:
            texts.append(Text(prompt, [turns[0].answer for turns in group]))
        for turns in group:
            read = prompt
            for turn, following in pairwise(turns):
                read += turn.answer + turn.observation
                texts.append(Text(read, [following.answer]))
    return texts


def turn_verdicts(
    samples: Sequence[Sample], judge: Environment, feedback: Feedback
) -> list[list[tuple[Verdict | None, Verdict]]]:
    """Return for each answer of each sample its verdicts by the public and the hidden tests.

    A conversation needs no hidden verdict of an answer before the last, and no public one of the
    last answer that was left, so these are found now. None: there are no public tests.
    """
    found: list[list[list[Verdict | None]]] = []
    missing: list[tuple[list[Verdict | None], int, Submission]] = []
    for sample in samples:
        problem, last = sample.prompt.problem, len(sample.turns) - 1
        rows: list[list[Verdict | None]] = []
        for place, turn in enumerate(sample.turns):
            hidden = sample.judgement if place == last else None
            row: list[Verdict | None] = [
                None if one is None else one.verdict for one in (turn.public, hidden)
            ]
            program = (hidden or turn.public or sample.judgement).program
            for which, tests in enumerate((feedback.public(problem), problem)):
                if row[which] is None and tests is not None:
                    text = as_response(program) if program else ""
                    missing.append((row, which, Submission(tests, text)))
            rows.append(row)
        found.append(rows)
    judged = judge.judge([submission for _, _, submission in missing])
    for (row, which, _), judgement in zip(missing, judged, strict=True):
        row[which] = judgement.verdict
    return [[_both(row) for row in rows] for rows in found]


def _both(row: Sequence[Verdict | None]) -> tuple[Verdict | None, Verdict]:
    public, hidden = row
    assert hidden is not None, "every problem has hidden tests"
    return public, hidden
