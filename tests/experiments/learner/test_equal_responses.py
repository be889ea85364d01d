"""A solved prompt whose responses are all equal: what rounding makes of SPO's gradient.

Q_T is the best reward but for rounding there, and micro-batches differ in rounding.
"""

import pytest
import torch

import algorithms
from envs.problem import Judgement, Problem, Verdict
from experiments.sample import Origin, PromptedProblem, Sample
from tests.experiments.learner.learning import learner_of

GROUPS, SIZE = 6, 8


def accepted(vocabulary, equal):
    """Groups of accepted responses, of random tokens, equal within a group or not."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count):
        return tuple(torch.randint(5, vocabulary, (count,), generator=generator).tolist())

    judged = Judgement(Verdict.ACCEPTED, 0, 1, 1, "")
    samples = []
    for group in range(GROUPS):
        prompt = PromptedProblem(Problem(f"p{group}", "", (), ()), tokens(12 + group))
        response = tokens(8 + group)
        for _ in range(SIZE):
            response = response if equal else tokens(8 + group)
            logps, origin = (-1.0,) * len(response), Origin("policy", "run", 1, 0)
            samples.append(Sample(prompt, response, logps, judged, 1.0, False, origin))
    return samples


@pytest.fixture(scope="module")
def gradient(nano):
    """Function (responses equal?, micro-batch) → SPO's gradient at some distance from the base."""

    def of(equal, micro_batch):
        spo = algorithms.make("spo", q0="group", loss="squared", beta=3.0)
        learner = learner_of(nano[0].model, spo, micro_batch=micro_batch, max_grad_norm=1e9)
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in learner.model.parameters():
                parameter.add_(0.01 * parameter.abs().mean() * torch.randn_like(parameter))
        samples = accepted(learner.model.config.vocab_size, equal)
        learner.update(samples, SIZE, None)
        return torch.cat([p.grad.flatten() for p in learner.model.parameters()])

    return of


def test_equal_responses_have_no_gradient_at_any_micro_batch_size(gradient):
    """The value of a group makes its mean error zero, at the policy that it is computed with."""
    unequal = gradient(False, 64).norm()
    assert unequal > 1
    whole, *cut = (gradient(True, micro_batch) for micro_batch in (64, 16, 5))
    assert whole.norm() < 1e-4 * unequal
    for other in cut:
        assert (other - whole).norm() < 1e-4 * unequal
