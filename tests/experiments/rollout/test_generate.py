"""Responses judged while others are written: the same samples, and no failure leaves anything."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from envs.judge.judge import Judge, JudgingSession
from envs.problem import Problem, Test
from envs.reward import RewardConfig
from envs.sandbox.embedded import EmbeddedSandbox
from experiments.engines.base import Engine, Sampling
from experiments.rollout import generate
from experiments.rollout.generate import Responder
from experiments.run_dir.interrupts import raise_interrupts
from experiments.run_dir.ledger import Ledger
from experiments.sample import Completion, Origin, PromptedProblem
from tests.experiments.compose import config

TESTS = (Test("2\n", "4\n"), Test("3\n", "9\n"))
PROMPTS = [PromptedProblem(Problem(f"p{i}", "", (), TESTS), (i,)) for i in range(4)]
TEXTS = ("print(int(input()) ** 2)", "print(4)", "print(1 / 0)", "no program", "print((")
SEEDS = [[1, 2, 3], [4], [], [5, 6, 7, 8]]
SLOW = "import time\ntime.sleep(60)"


class FakeEngine(Engine):
    """Generates the text of a seed's number; hands over the last first, and not all of them."""

    name, policy = "fake", None
    version = 7

    def __init__(self, before_last=lambda: None, kept=2):
        self.before_last, self.kept = before_last, kept

    def generate(self, request, finished=None):
        groups = [
            [Completion((s,), (0.0,), 0.0, False, 7) for s in group] for group in request.seeds
        ]
        written = [(p, n, c) for p, group in enumerate(groups) for n, c in enumerate(group)]
        if finished:
            for one in reversed(written[self.kept :]):
                finished([one])
        self.before_last()
        return groups

    def sync(self, weights):
        pass


class Tokenizer:
    def __init__(self, texts=TEXTS):
        self.texts = texts

    def batch_decode(self, rows, skip_special_tokens):
        assert rows  # of nothing, real ones make one text
        return [self.texts[tokens[0] % len(self.texts)] for tokens in rows]


@pytest.fixture(scope="module")
def sandbox():
    with EmbeddedSandbox(2) as sandbox:
        yield sandbox


def responder(sandbox, overlap=True, texts=TEXTS, before_last=lambda: None):
    parts = (FakeEngine(before_last), Judge(sandbox), Tokenizer(texts), RewardConfig())
    return Responder(*parts, overlap, Ledger())


def respond(at):
    return at.respond(PROMPTS, SEEDS, Sampling(9), Origin("policy", "run", 3))


def until_judging(of, count):
    """Waits until the judge has taken this many submissions."""

    def wait():
        for _ in range(12_000):
            if of[0].judge.stats.submissions >= count:
                return
            time.sleep(0.01)
        raise TimeoutError

    return wait


def timeless(samples):
    return [replace(s, judgement=replace(s.judgement, cpu_s=0.0)) for s in samples]


def judging_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("judge")]


@pytest.mark.parametrize(
    ("cores", "given", "expected"),
    [
        (2, (), True),
        (2, ("runtime.overlap=false",), False),
        (1, (), False),
        (1, ("model.device=cuda",), True),
    ],
)
def test_one_core_does_one_thing_at_a_time(cores, given, expected, monkeypatch):
    monkeypatch.setattr(generate, "default_workers", lambda: cores)
    monkeypatch.setattr("torch.cuda.is_available", lambda: "model.device=cuda" in given)
    assert generate.overlaps(config(*given)) is expected


def test_the_samples_are_those_of_writing_first_and_judging_then(sandbox):
    beside, plain = responder(sandbox), responder(sandbox, overlap=False)
    written, samples = respond(beside)
    first, then = respond(plain)
    assert written == first
    assert timeless(samples) == timeless(then)
    assert [s.tokens[0] for s in samples] == [seed for group in SEEDS for seed in group]
    assert {s.judgement.verdict for s in samples} > {"ACCEPTED"}
    assert replace(beside.judge.stats, cpu_s=0) == replace(plain.judge.stats, cpu_s=0)
    assert beside.ledger.seconds["judge"] > 0
    assert plain.ledger.waited == plain.ledger.seconds
    assert judging_threads() == []


@pytest.mark.parametrize("overlap", [False, True])
def test_judging_is_a_phase_of_its_own_that_counts_programs(overlap, sandbox, monkeypatch):
    at, seen, judge = responder(sandbox, overlap), [], JudgingSession.judge

    def noting(session, batch):
        for pair in judge(session, batch):
            while overlap and not at.activity.text().startswith("judging"):
                time.sleep(0.01)
            yield pair
            seen.append(at.activity.text().partition(",")[0])

    monkeypatch.setattr(JudgingSession, "judge", noting)
    respond(at)
    assert seen == [f"judging {count}/8 programs" for count in range(1, 9)]


def test_an_engine_that_fails_leaves_no_thread_and_a_judge_that_works(sandbox):
    of = []

    def fail():
        until_judging(of, 1)()
        raise ZeroDivisionError

    at = responder(sandbox, texts=(SLOW,), before_last=fail)
    of.append(at)
    with pytest.raises(ZeroDivisionError):
        respond(at)
    assert judging_threads() == []
    assert at.judge.stats.programs_judged == 0  # abandoned, not waited for
    again = Responder(FakeEngine(), at.judge, Tokenizer(), RewardConfig(), True, Ledger())
    assert timeless(respond(again)[1]) == timeless(respond(responder(sandbox))[1])


def test_an_interrupt_in_mid_batch_comes_out_once_the_judge_has_let_go(sandbox):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    raise_interrupts()
    try:
        of = []

        def interrupt():
            until_judging(of, 1)()
            os.kill(os.getpid(), signal.SIGINT)

        at = responder(sandbox, texts=(SLOW,), before_last=interrupt)
        of.append(at)
        with pytest.raises(KeyboardInterrupt):
            respond(at)
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
            signal.signal(number, handler)
    assert judging_threads() == []
    assert at.judge.stats.programs_judged == 0
    assert timeless(respond(responder(sandbox))[1]) == timeless(
        respond(responder(sandbox, overlap=False))[1]
    )
