"""What SPO weighs where π_θ = π_ref, on problems of which the reference solves 6 %.

Each problem has a tabular policy of its own: 27 responses of three tokens, eight drawn. The rows
are those of the table in docs/guide/algorithms.md.
"""

import functools
from pathlib import Path

import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.spo import soft_value
from tests.algorithms.tabular import LENGTH, PREFIXES, RESPONSES, ROWS, VOCABULARY

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "algorithms.md"
PROBLEMS, SIZE, SAMPLES, RATE = 2000, 8, 16, 0.06
BETAS = (0.029, 0.1, 0.3, 0.5, 1.0)


@functools.cache
def problems():
    """Policies (problems, prefixes, vocabulary), drawn responses, their and SAMPLES' rewards."""
    generator = torch.Generator().manual_seed(0)
    shape = (PROBLEMS, len(RESPONSES))
    odds = torch.randn(shape, generator=generator, dtype=torch.float64).exp()
    solves = torch.rand(shape, generator=generator).argsort(-1) < 3
    solved, failed = odds * solves, odds * ~solves
    joint = RATE * solved / solved.sum(-1, keepdim=True)
    joint = joint + (1 - RATE) * failed / failed.sum(-1, keepdim=True)
    tables = torch.zeros(PROBLEMS, PREFIXES * VOCABULARY, dtype=torch.float64)
    for t in range(LENGTH):
        cells = (ROWS[:, t] * VOCABULARY + RESPONSES[:, t]).expand(shape)
        tables.scatter_add_(1, cells, joint)
    drawn = torch.multinomial(joint, SIZE + SAMPLES, replacement=True, generator=generator)
    rewards = solves.gather(1, drawn).double()
    tables = tables.view(PROBLEMS, PREFIXES, VOCABULARY).log()
    return tables, drawn[:, :SIZE], rewards[:, :SIZE].flatten(), rewards[:, SIZE:]


def pulls(name, **options):
    """(gradient of all tables, d loss / d S of each response, accepted) of an objective."""
    tables, drawn, rewards, reference = problems()
    tables = tables.clone().requires_grad_(True)
    row = torch.arange(PROBLEMS).view(-1, 1, 1)
    logp = tables.log_softmax(-1)[row, ROWS[drawn], RESPONSES[drawn]].view(-1, LENGTH)
    logp.retain_grad()
    kept = torch.ones(len(logp), dtype=torch.bool)
    ahead = logp.detach()
    q0 = None
    if options.get("q0") == "monte_carlo":
        q0 = soft_value(reference, options["beta"]).repeat_interleave(SIZE)
    batch = Batch(
        mask=torch.ones_like(logp, dtype=torch.bool),
        rewards=rewards,
        keep=kept,
        online=kept,
        fresh=kept,
        group_size=SIZE,
        behaviour_logp=ahead,
        ref_logp=ahead,
        policy_logp=ahead,
        q0=q0,
    )
    algorithm = algorithms.make(name, **options)
    batch = algorithm.prepare(batch)
    output = PolicyOutput(logp=logp[batch.keep], entropy=logp[batch.keep])
    algorithm.loss(output, batch.only_kept())[0].backward()
    return tables.grad.flatten(), logp.grad[:, 0], rewards > 0


def cosine(one, other):
    return torch.nn.functional.cosine_similarity(one, other, dim=0).item()


@functools.cache
def direction(name):
    return pulls(name, **({"kl_coef": 0.0} if name == "rloo" else {}))[0]


@functools.cache
def weighed(**options):
    """(share of Σ |d loss / d S| on failures, cosines with maximum likelihood and with RLOO)."""
    gradient, slopes, accepted = pulls("spo", **options)
    share = (slopes[~accepted].abs().sum() / slopes.abs().sum()).item()
    return share, cosine(gradient, direction("raft")), cosine(gradient, direction("rloo"))


def test_the_guides_table_is_what_is_measured_here():
    forms = [
        {"loss": "cross_entropy", "q0": "group"},
        {"loss": "cross_entropy", "q0": "monte_carlo"},
        {"loss": "cross_entropy", "q0": "group", "exponent": "q"},
        {"loss": "squared", "q0": "group"},
        {"loss": "squared", "q0": "monte_carlo"},
    ]
    guide = GUIDE.read_text(encoding="utf-8")
    for form in forms:
        name = " ".join(f"{key}={value}" for key, value in form.items())
        cells = [weighed(beta=beta, **form)[:2] for beta in BETAS]
        row = " | ".join(f"{share:.3f}, {cosine:.3f}" for share, cosine in cells)
        assert f"| `{name}` | {row} |" in guide
