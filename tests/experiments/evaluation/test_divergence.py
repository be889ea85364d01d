"""The KL to the base: zero at the start, the true one later, and the same for every algorithm."""

import copy
from dataclasses import replace

import pytest
import torch

from algorithms.grpo import GRPO
from envs.feedback import Feedback
from envs.problem import Judgement, Problem, Test, Verdict
from experiments.engine_check import kl_to_base
from experiments.engines.hf import HFEngine
from experiments.learner.learner import Learner
from experiments.policy.policy import Policy
from experiments.rollout.conversations import Dialogue
from experiments.rollout.observations import ObservationEncoder
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem
from tests.compose import options_of, train_config
from tests.experiments.compose import config

PROMPTS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (2, 5 + i, 9)) for i in range(8)]


def measured(model, learner, samples=64, tokens=1):
    run = config(f"eval.kl_samples={samples}")
    run.task.max_response_tokens = tokens
    engine = HFEngine(Policy(model), {1}, 0, 512)
    return kl_to_base(replace(run, seed=3), 1, PROMPTS, engine, learner, 1e-3, None)[0]


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


def test_no_reference_is_held_where_nothing_asks_for_it(tiny):
    assert learner_of(tiny).reference is None


class Wrong:
    """A judge by whom every answer fails the first public test; it notes the problems."""

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
    run = config("eval.kl_samples=2")
    run.task.max_response_tokens = 6
    ids = [tuple(tokenizer(f"<|user|>{p.name}<|assistant|>")["input_ids"]) for p in problems]
    prompts = [PromptedProblem(p, i) for p, i in zip(problems, ids, strict=True)]
    encoder = ObservationEncoder(tokenizer, True, {}, 256)
    dialogue = Dialogue(turns, Feedback("tests"), Feedback("withheld"), encoder)
    engine = HFEngine(Policy(model), {tokenizer.eos_token_id}, tokenizer.pad_token_id, 64)
    judge, talk = Wrong(), dialogue if turns > 1 else None
    found, off = kl_to_base(run, 1, prompts, engine, learner, 1e-3, judge, talk)
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
