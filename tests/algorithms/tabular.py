"""A tabular policy over 27 responses, whose optimum is known by enumeration."""

import itertools

import torch

BETA = 0.5
VOCABULARY, LENGTH = 3, 3
RESPONSES = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
MASK = torch.ones(len(RESPONSES), LENGTH, dtype=torch.bool)


def prefix_rows(responses):
    """Index of each token's prefix in a table of prefixes: (batch, time)."""
    rows = []
    for t in range(LENGTH):
        offset = sum(VOCABULARY**i for i in range(t))
        code = torch.zeros(len(responses), dtype=torch.long)
        for i in range(t):
            code = code * VOCABULARY + responses[:, i]
        rows.append(offset + code)
    return torch.stack(rows, 1)


PREFIXES = sum(VOCABULARY**t for t in range(LENGTH))
ROWS = prefix_rows(RESPONSES)


def table_logp(table):
    """Per-token log-probs of all responses under a logit table, (batch, time)."""
    return table.log_softmax(-1)[ROWS, RESPONSES]


def world():
    """A reference policy, rewards in [−1, 0] for all 27 responses, and the exact answer."""
    generator = torch.Generator().manual_seed(3)
    reference = torch.randn(PREFIXES, VOCABULARY, generator=generator, dtype=torch.float64)
    rewards = -torch.rand(len(RESPONSES), generator=generator, dtype=torch.float64)
    ref_logp = table_logp(reference)
    log_unnormalised = ref_logp.sum(-1) + rewards / BETA
    return {
        "reference": reference,
        "ref_logp": ref_logp,
        "rewards": rewards,
        "q0": BETA * log_unnormalised.logsumexp(-1),
        "optimum": log_unnormalised.softmax(-1),
    }


def total_variation(table, optimum):
    return 0.5 * (table_logp(table).sum(-1).exp() - optimum).abs().sum().item()


def fit(world, loss_of, steps=600):
    """Fit a table to full-support off-policy data: every response once."""
    table = world["reference"].clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([table], max_iter=steps, tolerance_grad=1e-12, history_size=50)

    def closure():
        optimiser.zero_grad()
        loss = loss_of(table_logp(table))
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(closure)
    return table.detach()
