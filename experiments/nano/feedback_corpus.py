"""The corpus of conversations: a noisy program, what its sample says of it, and a mended program.

A first answer is as wrong as in the corpus of single programs. An answer that fails the problem's
sample is followed by an observation, in the words that a run uses, and by another version of the
same program. In it each mistake is mended with a probability that falls with the part's rarity, and
each right part goes wrong now and then. A version does not depend on the words of the observation.
So what it says helps a model only to find the part that is wrong.
"""

from __future__ import annotations

import random
import traceback

from envs.feedback import Feedback
from envs.judge.grading import exception_text
from envs.problem import Judgement, Problem, Test, Verdict
from envs.tasks.mini.families import Draft
from envs.tasks.mini.problems import MINI, TIME_LIMIT_S, render, run_own
from envs.tasks.prompts import TEMPLATES
from experiments.nano.corpus import Conversation, Corpus
from experiments.rollout.conversations import observation_text
from experiments.rollout.observations import ObservationEncoder

TEMPLATE = TEMPLATES / "feedback_mini.jinja"
TURNS = 3
MENDED = (0.5, 0.35, 0.2)  # probability that a mistake in a part of level 0, 1, 2 is mended
SLIP = 0.03  # probability that a right part goes wrong
WITHHELD = 0.25  # share of conversations in which an observation says only that an answer is wrong


class FeedbackCorpus(Corpus):
    """Endless conversations about the train split's compositions of `task=mini`."""

    def __init__(self, seed: int, encoder: ObservationEncoder) -> None:
        """`encoder`: of the model that learns from them; it decides how long an observation is."""
        super().__init__(MINI, seed)
        self.rng = random.Random(f"nano/feedback/{seed}")
        self.encoder = encoder
        self.tests, self.withheld = Feedback("tests", TEMPLATE), Feedback("withheld", TEMPLATE)

    def __next__(self) -> Conversation:
        drawn, shown = self.draw()
        feedback = self.withheld if self.rng.random() < WITHHELD else self.tests
        problem = _public(drawn, shown)
        style = str(self.rng.getrandbits(64))
        mistakes = self.noise.mistakes(drawn, self.rng)
        answers, observations = [drawn.version(style, mistakes)], []
        while len(answers) < TURNS:
            judged = judgement(problem, answers[-1])
            if judged.verdict is Verdict.ACCEPTED:
                break
            observations.append(observation_text(self.encoder, feedback, problem, judged))
            mistakes = self._next(drawn, mistakes)
            answers.append(drawn.version(style, mistakes))
        prompt = render(drawn.statement, (shown,))
        return Conversation(prompt, tuple(answers), tuple(observations))

    def _next(self, drawn: Draft, mistakes: dict[int, int]) -> dict[int, int]:
        """Return the mistakes of the next version."""
        left: dict[int, int] = {}
        for slot, part in enumerate(drawn.parts):
            right = MENDED[part.level] if slot in mistakes else 1 - SLIP
            if self.rng.random() >= right:
                left[slot] = 0 if self.rng.random() < self.noise.first_mistake else 1
        return left


def judgement(problem: Problem, program: str) -> Judgement:
    """Judge a program of this package by a problem's only test, in this process."""
    [test] = problem.tests
    verdict, output, exception = Verdict.WRONG_ANSWER, "", ""
    try:
        output = run_own(program, test.input)
    except Exception:
        verdict = Verdict.RUNTIME_ERROR
        # A submitted program has this name in the sandbox.
        shown = traceback.format_exc().replace('File "<program>"', 'File "main.py"')
        exception = exception_text(shown)
    if verdict is Verdict.WRONG_ANSWER and output.split() == test.output.split():
        verdict = Verdict.ACCEPTED
    accepted = verdict is Verdict.ACCEPTED
    return Judgement(
        verdict=verdict,
        passed=int(accepted),
        total=1,
        run=1,
        program=program,
        problem_hash=problem.hash,
        failed_test=None if accepted else 0,
        output=output if verdict is Verdict.WRONG_ANSWER else "",
        exception=exception,
    )


def _public(drawn: Draft, shown: Test) -> Problem:
    return Problem(
        name=drawn.statement,
        statement=drawn.statement,
        samples=(shown,),
        tests=(shown,),
        time_limit_s=TIME_LIMIT_S,
        in_order=True,
    )
