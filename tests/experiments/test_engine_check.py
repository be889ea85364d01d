"""The check of engine against learner: what it measures, when it is made, which faults it finds."""

import copy
import math

import pytest
import torch

from algorithms.grpo import GRPO
from envs.problem import Judgement, Problem, Test, Verdict
from envs.reward import RewardConfig
from envs.tasks.prompts import Feedback
from experiments.engine_check import BOUNDS, LogprobCheck, kl_to_base, mismatch
from experiments.engines.hf import HFEngine
from experiments.learner.forward import score
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.lora import adapted, trained
from experiments.policy.policy import Policy, copy_weights, frozen_copy
from experiments.rollout.conversations import Dialogue, ObservationEncoder
from experiments.rollout.generate import Responder
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem
from tests.compose import engine_config, model_config, options_of, run_config, train_config

PROBLEMS = [
    PromptedProblem(Problem(str(i), "", (), ()), prompt)
    for i, prompt in enumerate([(2, 7, 9, 30), (2, 5), (2, 11, 3, 8, 40, 12, 6)])
]


class Scorer:
    """The part of a learner that a check reads."""

    pad = 0

    def __init__(self, policy, temperature, reference=None):
        self.policy, self.model = policy, policy.model
        self.temperature, self.reference = temperature, reference

    @torch.no_grad()
    def logp(self, tokens):
        return score(self.policy, tokens, self.temperature).logp

    @torch.no_grad()
    def ref_logp(self, tokens):
        return score(self.reference, tokens, self.temperature).logp


def monitor(policy, engine, reference=None, **options):
    config = run_config(
        algo=None,
        engine=engine_config(**{"logprob_check_samples": 32} | options),
        train=train_config(temperature=0.7),
    )
    config.task.max_response_tokens = 12
    return LogprobCheck(config, engine, Scorer(policy, 0.7, reference), PROBLEMS)


def test_figures_are_those_of_the_difference():
    told, scored = torch.tensor([-1.0, -2.0, -3.0, -1.0]), torch.tensor([-1.0, -2.5, -2.9, -1.0])
    found = mismatch(told, scored, 0.2)
    assert found.mean == pytest.approx(0.15)
    assert found.max == pytest.approx(0.5)
    assert found.beyond == 0.25
    d = [0.5, -0.1]
    assert found.kl == pytest.approx(sum(math.exp(-x) - 1 + x for x in d) / 4)


def test_the_loop_agrees_with_the_learner_to_rounding(tiny):
    watch = monitor(Policy(tiny), HFEngine(Policy(tiny), {1}, 0, 64))
    found = watch.check(1)
    assert found.max < 1e-4
    assert found.beyond == 0
    assert set(found.metrics()) == {
        f"mismatch/{name}" for name in ("mean", "max", "kl", "beyond", "bound", "to_base")
    }
    first, later = (watch.news(when, found) for when in ("step 1", "step 11"))
    assert first[0].startswith("step 1: log-probs of the hf engine") and later == []


@pytest.mark.parametrize(
    ("head_dtype", "logits"), [("auto", torch.float16), ("float32", torch.float32)]
)
def test_in_float16_the_loop_agrees_within_the_bound_of_float16(head_dtype, logits):
    policy, tokenizer = loading.load(model_config(dtype="float16", head_dtype=head_dtype))
    assert policy.model(torch.tensor([[5]])).logits.dtype == logits
    engine = HFEngine(policy, {tokenizer.eos_token_id}, tokenizer.pad_token_id, 64)
    assert 1e-5 < monitor(policy, engine).check(1).mean < BOUNDS["float16"] / 4


def test_a_sync_left_out_is_caught(tiny):
    engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    watch = monitor(Policy(tiny), engine)
    torch.manual_seed(1)
    with torch.no_grad():
        tiny.lm_head.weight.add_(torch.randn_like(tiny.lm_head.weight) * 0.1)
    found = watch.check(1)
    assert found.mean > 0.01
    assert found.beyond > 0.5
    said = [line for _ in range(2) for line in watch.news("step 1", found)]
    assert [line[:43] for line in said] == ["step 1: WARNING: log-probs of the hf engine"] * 2
    engine.sync(Policy(tiny))
    assert watch.news("step 2", watch.check(2)) == []  # a line at the start alone


def moved(policy, by):
    """The policy after a little training, as it were."""
    after, generator = frozen_copy(policy), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in after.model.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator)
    return after


def test_an_engine_that_writes_with_the_base_is_found_below_the_bound_too(tiny):
    base = Policy(tiny)
    now = moved(base, 4e-6)
    for generating, warned in ((base, True), (now, False)):
        watch = monitor(now, HFEngine(generating, {1}, 0, 64), reference=base)
        found = watch.check(1)
        assert found.mean < found.bound  # alone it would have passed
        assert found.warned is warned
        assert watch.summary(found).startswith("WARNING") is warned
    assert found.to_base > 10 * found.mean  # nearer to the trained weights


def test_an_ignored_adapter_is_found(tiny):
    base = Policy(tiny)
    policy = adapted(base, model_config(adapter="lora", adapter_rank=4), seed=0)
    with torch.no_grad():
        for parameter in trained(policy.model):
            parameter += 1e-2
    engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    policy.version = 3
    copy_weights(policy, into=engine.policy)
    assert not monitor(policy, engine, reference=base).check(1).warned
    ignores = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    ignores.policy.version = 3  # it says that it took them
    assert monitor(policy, ignores, reference=base).check(1).warned


PROMPTS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (2, 5 + i, 9)) for i in range(8)]


class Ids:
    def batch_decode(self, rows, skip_special_tokens):
        return [""] * len(rows)


def divergence(prompts, engine, learner, judge, samples, tokens, talk=None, tokenizer=None):
    run = run_config(algo=None, seed=3)
    run.task.max_response_tokens = tokens
    check = LogprobCheck(run, engine, learner, prompts)
    responder = Responder(engine, judge, tokenizer or Ids(), RewardConfig(), False, dialogue=talk)
    return kl_to_base(1, samples, prompts, responder, check)


def measured(model, learner, samples=64):
    engine = HFEngine(Policy(model), {1}, 0, 512)
    return divergence(PROMPTS, engine, learner, Wrong(), samples, 1)[0]


def learner_of(model, **options):
    bare = GRPO(options_of("grpo", kl_coef=0.0), 1.0)  # its loss needs no reference
    return Learner(Policy(model), 0, bare, train_config(), 10, Ledger(), **options)


def test_at_the_start_it_is_zero(tiny):
    assert measured(tiny, learner_of(tiny, keep_reference=True)) == pytest.approx(0, abs=1e-5)


def test_it_is_the_kl_of_what_the_policy_writes(tiny):
    """One token: the KL of the next-token distributions, summed over the whole vocabulary."""
    model = copy.deepcopy(tiny)
    learner = learner_of(model, keep_reference=True)
    torch.manual_seed(1)
    with torch.no_grad():
        model.lm_head.weight.add_(torch.randn_like(model.lm_head.weight) * 0.4)
        exact = []
        for prompt in PROMPTS:
            ids = torch.tensor([prompt.tokens])
            new, old = (m(ids).logits[0, -1].log_softmax(-1) for m in (model, tiny))
            exact.append((new.exp() * (new - old)).sum())
    expected = torch.stack(exact).mean().item()
    assert expected > 0.05
    assert measured(model, learner, samples=512) == pytest.approx(expected, rel=0.15)


class Wrong:
    """A judge by whom every answer fails the first public test; it notes the problems."""

    version, stats = "wrong", None

    def __init__(self):
        self.asked = []

    def judge(self, submissions):
        self.asked += [submission.problem for submission in submissions]
        rest = (Verdict.WRONG_ANSWER, 0, 1, 1, "print(1)")
        return [
            Judgement(*rest, problem_hash=problem.hash, failed_test=0, output="1")
            for problem in (submission.problem for submission in submissions)
        ]


def conversations(nano, problems, turns):
    """KL and mismatch of a changed bundled model, the scored tokens, the judge, both models."""
    policy, tokenizer = nano
    model = copy.deepcopy(policy.model)
    learner = Learner(
        Policy(model),
        tokenizer.pad_token_id,
        GRPO(options_of("grpo", kl_coef=0.0), 1.0),
        train_config(),
        10,
        Ledger(),
        keep_reference=True,
    )
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    scored, logp = [], learner.logp
    learner.logp = lambda tokens: scored.append(tokens) or logp(tokens)
    ids = [tuple(tokenizer(f"<|user|>{p.name}<|assistant|>")["input_ids"]) for p in problems]
    prompts = [PromptedProblem(p, i) for p, i in zip(problems, ids, strict=True)]
    encoder = ObservationEncoder(tokenizer, True, {}, 256)
    dialogue = Dialogue(turns, Feedback("tests"), Feedback("withheld"), encoder)
    engine = HFEngine(Policy(model), {tokenizer.eos_token_id}, tokenizer.pad_token_id, 64)
    judge, talk = Wrong(), dialogue if turns > 1 else None
    found, off = divergence(prompts, engine, learner, judge, 2, 6, talk, tokenizer)
    return found, off, scored[0], judge, (model, policy.model)


SHOWN = Problem("double", "", (Test("1\n", "2\n"),), (Test("1\n", "2\n"), Test("3\n", "6\n")))


def test_of_conversations_it_is_over_all_answers_given_what_was_observed(nano):
    found, off, tokens, judge, models = conversations(nano, [SHOWN, SHOWN], 2)
    assert tokens.mask.sum() > tokens.own.sum() > 0
    sums = []
    for row, response in enumerate(tokens.responses):
        prompt = tokens.prompts[tokens.prompt_of[row]][tokens.prompt_mask[tokens.prompt_of[row]]]
        ids = torch.cat([prompt, response[tokens.mask[row]]])
        read = response[tokens.mask[row] & ~tokens.own[row]]
        assert "failed on sample 1" in nano[1].decode(read)
        with torch.no_grad():
            new, old = (
                m(ids[None]).logits[0, len(prompt) - 1 : -1].log_softmax(-1) for m in models
            )
        chosen = response[tokens.mask[row]].unsqueeze(-1)
        ratio = (old - new).gather(-1, chosen).squeeze(-1)[tokens.own[row][tokens.mask[row]]]
        sums.append((ratio.exp() - 1 - ratio).sum())
    expected = float(torch.stack(sums).mean())
    assert found == pytest.approx(expected, rel=1e-3) and expected > 0.01
    assert off.mean < 1e-4  # the engine's log-probs of all answers are the learner's
    assert len(judge.asked) == 4 and all(p.name == "double/public" for p in judge.asked)


def test_a_conversation_of_one_answer_has_the_bits_of_an_answer(nano):
    blind = Problem("blind", "", (), (Test("3\n", "6\n"),))
    talk, _, tokens, judge, _ = conversations(nano, [blind, blind], 3)
    assert judge.asked == [] and tokens.own is tokens.mask
    assert talk == conversations(nano, [blind, blind], 1)[0]
