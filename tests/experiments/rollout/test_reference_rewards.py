"""Rewards of reference responses: drawn once, shared by runs, charged to each."""

import json

import torch

from envs.judge.judge import JudgeStats
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig
from experiments.config.schema import PREFETCHED_BATCHES
from experiments.engines.base import Sampling
from experiments.rollout.generate import Responder
from experiments.rollout.initial_values import ReferenceRewards, _record
from experiments.run_dir.ledger import Ledger, ModelFlops
from experiments.sample import Completion, Origin, PromptedProblem, Sample, Turn


class FakeEngine:
    """Its response to a seed is the seed's last digit."""

    name = "fake"

    def __init__(self):
        self.calls = []

    def generate(self, request, finished=None):
        seeds = request.seeds
        self.calls.append([len(of) for of in seeds])
        return [[self._one(seed % 10) for seed in of] for of in seeds]

    def _one(self, digit):
        return Completion((digit, 1), (0.0, 0.0), 0.0, False, 0)


class Tokenizer:
    def batch_decode(self, rows, skip_special_tokens):
        return [str(row[0]) for row in rows]


class Digits:
    """3, 6, 9 are right. A program costs as many tests as it says; the judge fails on `broken`.

    Wall time decides on `slow`.
    """

    version = "digits"

    def __init__(self, broken=(), slow=()):
        self.broken, self.slow = broken, slow

    def judge(self, submissions):
        return [self._one(int(submission.response)) for submission in submissions]

    def _one(self, digit):
        verdict = Verdict.ACCEPTED if digit in (3, 6, 9) else Verdict.WRONG_ANSWER
        if digit in self.broken:
            verdict = Verdict.INFRA_ERROR
        program = f"print({digit})" if digit else ""
        return Judgement(verdict, 0, 9, digit, program, 0.5, by_wall_time=digit in self.slow)


PROMPTS = [PromptedProblem(Problem(f"p{i}", f"{i}", (), ()), (2, 3 + i)) for i in range(40)]


def reference_rewards(folder, samples=8, seed=0, broken=(), policy="a", slow=()):
    judge = Digits(broken, slow)
    responder = Responder(FakeEngine(), judge, Tokenizer(), RewardConfig(), overlap=True)
    ledger = Ledger(model=ModelFlops(blocks=10, head=1))
    return ReferenceRewards(folder, responder, policy, Sampling(8), samples, seed, ledger)


def spent(reference):
    return reference.ledger.counts, reference.judging_stats


def test_what_another_run_left_is_read_and_charged_all_the_same(tmp_path):
    cold = reference_rewards(tmp_path)
    first = cold.rewards_of(PROMPTS[:3])
    warm = reference_rewards(tmp_path)
    again = warm.rewards_of(PROMPTS[:3])
    assert warm.responder.engine.calls == []
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert spent(cold) == spent(warm)


def test_programs_tests_and_cpu_are_charged_once_for_equal_programs(tmp_path):
    reference = reference_rewards(tmp_path)
    reference.rewards_of(PROMPTS[:1])
    digits = {r["tests"] for r in next(iter(reference._responses.values()))} - {0}
    counts, charged = spent(reference)
    assert charged == JudgeStats(
        programs_judged=len(digits), tests_run=sum(digits), cpu_s=0.5 * len(digits)
    )
    assert counts.reference_programs == len(digits) < 8
    assert counts.reference_tokens == 16
    assert counts.flops == 2 * (10 * (1 + 16) + 1 * 16)  # the prompt has two tokens
    reference.rewards_of(PROMPTS[:1])
    assert charged.programs_judged == len(digits)  # a prompt that comes again costs nothing


def test_of_a_conversation_the_programs_on_public_tests_are_charged_too(tmp_path):
    def judged(program, by_wall_time=False):
        verdict = Verdict.WRONG_ANSWER
        return Judgement(verdict, 0, 9, 2, program, 0.5, by_wall_time=by_wall_time)

    def sample(*public, slow=False):
        turns = [Turn(3, 2, judged(program, slow), "wrong") for program in public]
        last, origin = judged("last"), Origin("reference")
        tokens = tuple(range(5 * len(turns) + 3))
        logps = (0.0,) * len(tokens)
        return Sample(PROMPTS[0], tokens, logps, last, 0.0, False, origin, turns=(*turns, Turn(3)))

    reference = reference_rewards(tmp_path)
    records = [_record(sample("a", "b")), _record(sample("a")), _record(sample())]
    reference._charge(PROMPTS[0], records)
    counts, charged = spent(reference)
    assert counts.reference_programs == charged.programs_judged == 3  # a, b, and the last one
    assert (charged.tests_run, charged.cpu_s) == (6, 1.5)
    assert not records[0]["by_wall_time"]
    assert _record(sample("a", slow=True))["by_wall_time"]


def test_what_the_judge_failed_on_is_left_out_and_not_kept_for_others(tmp_path):
    reference = reference_rewards(tmp_path, broken=(7,))
    found = reference.rewards_of(PROMPTS)
    failed = [p for p, rewards in zip(PROMPTS, found, strict=True) if len(rewards) < 8]
    assert 0 < len(failed) < len(PROMPTS)
    kept = {json.loads(line)["problem"] for line in reference.path.read_text().split("\n") if line}
    assert kept == {p.problem.name for p in PROMPTS} - {p.problem.name for p in failed}
    assert reference.judging_stats.infra_errors >= len(failed)


def test_many_batches_are_drawn_at_once_and_charged_when_they_come(tmp_path):
    reference = reference_rewards(tmp_path)
    asked = []

    def coming(batches):
        asked.append(batches)
        return PROMPTS[: 2 * batches]

    reference.prefetch(coming, batches_left=100)
    assert reference.responder.engine.calls == [[8] * 2 * PREFETCHED_BATCHES]
    assert reference.ledger.counts.reference_tokens == 0
    reference.prefetch(coming, batches_left=100)
    reference.rewards_of(PROMPTS[:4])
    assert len(reference.responder.engine.calls) == 1
    assert reference.ledger.counts.reference_tokens == 4 * 16
    assert max(asked) == PREFETCHED_BATCHES
