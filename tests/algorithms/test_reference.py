"""What the reference changes in a step: π must come closer to it, along the gradient of a KL.

Without it, and with rewards that say nothing of a response, the expected step is zero.

Every objective that needs the reference is tested, on responses of one token, where a response's KL
is its token's. A batch is one group that holds each response as often as π gives it, half of them
accepted and half rejected. So sums over the batch are exact expectations, and the rewards have no
part in them. The reference's part of a step is its difference to the step where π_ref = π.
"""

import pytest
import torch

import algorithms
from tests.algorithms.batches import gradient
from tests.algorithms.test_invariance import CASES

POLICY = torch.tensor([1, 1, 2, 4], dtype=torch.float64) / 8
REFERENCE = torch.tensor([10, 5, 4, 1], dtype=torch.float64) / 20
COPIES = 2  # of each eighth: accepted and rejected
DRAWN = torch.tensor([0, 1, 2, 2, 3, 3, 3, 3]).repeat_interleave(COPIES)

# Beside the options of a case, so that sums over the batch stay expectations.
OPTIONS = {
    "cppo": {"prune": 0.0},  # by default half of these responses are dropped
    "rso": {"samples": len(DRAWN), "beta": 1.0},  # its hinge is flat in the default's reach
    "spo": {"huber_width": 10.0},  # loss=advantage: the parabola of its slope alone
}
GROUPS = {"pf_ppo": COPIES}  # it takes one accepted and one rejected response of each group
# The slopes of these cases are bounded or weighed by rank: no multiple of log π/π_ref.
BOUNDED = {"rso", "rso samples=2", "lipo"}
BOUNDED |= {"spo", "spo q0=monte_carlo", "spo q0=monte_carlo exponent=q"}  # cross-entropy
BOUNDED |= {"spo q0=group_soft"}
# These have a step without a cause in rewards or reference, each by its own rule.
MOVED = {
    "pro": "weighs responses by their own mean log-probs",
    "lipo": "ranks a group's equal rewards by tie breakers",
    "clip_cov share=0.2 cov_low=0.01": "drops tokens drawn from a band of covariances",
    "srft": "weighs responses by the policy's entropy",
}
# PRIME's reference is that of its reward model: it pays what the reference finds improbable.
NEEDING = [case for case, (name, o) in CASES.items() if algorithms.make(name, **o).needs.reference]
NEEDING.remove("prime")


def step(algorithm, reference):
    """−∂L/∂logits of π (4,), with this reference's probabilities."""
    logp = POLICY.log()[DRAWN].unsqueeze(-1)
    names = ("logp", "behaviour_logp", "policy_logp", "start_logp", "proximal_logp")
    tensors = dict.fromkeys(names, logp)
    tensors["ref_logp"] = tensors["precedent_logp"] = reference.log()[DRAWN].unsqueeze(-1)
    of_tokens = algorithm.needs.critic == "log_probs"
    values = logp if of_tokens else torch.full_like(logp, 0.3)
    tensors["values"] = tensors["new_values"] = values
    count = len(DRAWN)
    pulls = -gradient(
        algorithm,
        tensors,
        torch.ones(count, dtype=torch.long),
        (torch.arange(count) % COPIES).double(),
        online=torch.ones(count, dtype=torch.bool),
        group=GROUPS.get(algorithm.config.name, count),
        batches=0,
    )[1].sum(-1)
    return torch.zeros_like(POLICY).index_add(0, DRAWN, pulls) - POLICY * pulls.sum()


def descent(divergence):
    """−∂D/∂logits of π (4,), D of log π and log π_ref."""
    logits = POLICY.log().requires_grad_(True)
    divergence(logits.log_softmax(-1), REFERENCE.log()).backward()
    return -logits.grad


def reverse(logp, ref_logp):
    """KL(π ‖ π_ref)."""
    return (logp.exp() * (logp - ref_logp)).sum()


def forward(logp, ref_logp):
    """KL(π_ref ‖ π): its gradient is that of k3 in a loss."""
    return reverse(ref_logp, logp)


def cosine(one, other):
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


def check(algorithm, is_bounded=False):
    """Raise AssertionError if the reference's part of a step is no descent of a KL.

    Of KL(π ‖ π_ref), or with k3 of KL(π_ref ‖ π); either without an option `kl`. `is_bounded`: the
    step only has to lower KL(π ‖ π_ref).
    """
    part = step(algorithm, REFERENCE) - step(algorithm, POLICY)
    closer = cosine(part, descent(reverse))
    assert closer > 0
    if is_bounded:
        return
    claims = [closer, cosine(part, descent(forward))]
    kind = getattr(algorithm.config, "kl", None)
    claims = claims if kind is None else [claims[kind == "k3"]]
    assert max(claims) > 1 - 1e-5


@pytest.mark.parametrize("case", NEEDING)
def test_the_reference_draws_the_policy_along_the_gradient_of_a_kl(case):
    name, options = CASES[case]
    algorithm = algorithms.make(name, **options | OPTIONS.get(name, {}))
    check(algorithm, case in BOUNDED)


def check_nowhere(algorithm):
    """Raise AssertionError if there is a step that neither rewards nor the reference cause."""
    torch.testing.assert_close(
        step(algorithm, POLICY), torch.zeros_like(POLICY), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("case", sorted(set(CASES) - set(MOVED)))
def test_without_a_cause_the_expected_step_is_zero(case):
    """E_π[A ∇log π] = E_π[A] E_π[∇log π] = 0 for A that is independent of the response.

    Where A holds log π with its gradient, log π ∇A is left: a pull on the entropy.
    """
    name, options = CASES[case]
    check_nowhere(algorithms.make(name, **options | OPTIONS.get(name, {})))
