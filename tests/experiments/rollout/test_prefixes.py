"""Continuations from prefixes: values against enumeration, where they begin, what they cost."""

import itertools
import math

import pytest
import torch

from algorithms.base import Steps
from envs.judge.judge import Judge
from envs.problem import Judgement, JudgeStats, Problem, Test, Verdict
from envs.reward import RewardConfig
from envs.sandbox.embedded import EmbeddedSandbox
from experiments.engines.base import Engine, Sampling, uniforms
from experiments.learner.batching import judged_batch, with_step_values
from experiments.rollout.generate import Responder
from experiments.rollout.prefixes import PrefixValues, continued_rewards, cut_points, estimate
from experiments.run_dir.ledger import Ledger, ModelFlops
from experiments.sample import Completion, Origin, PromptedProblem, Sample
from tests.algorithms.tabular import BETA, RESPONSES, ROWS, table_logp, world
from tests.compose import train_config

PROMPT = PromptedProblem(Problem("p", "", (), ()), (9, 9))


def sample_of(tokens, logps=None, prompt=PROMPT):
    judged = Judgement(Verdict.ACCEPTED, 1, 1, 1, "")
    return Sample(prompt, tuple(tokens), logps, judged, 1.0, False, Origin("policy", "run", 1, 0))


class Writer(Engine):
    """Continues each prefix by `more(prefix, seed)`; a tokenizer whose tokens are these words."""

    name, policy, version = "writer", None, 0

    def __init__(self, more, words):
        self.more, self.words, self.requests = more, words, []

    def generate(self, request, finished=None):
        self.requests.append(request)
        pairs = zip(request.begun, request.seeds, strict=True)
        ends = [map(self.more, begun, seeds) for begun, seeds in pairs]
        return [[Completion(end, (0.0,) * len(end), 0.0, True, 0) for end in g] for g in ends]

    def batch_decode(self, rows, skip_special_tokens):
        return ["".join(self.words[token] for token in row) for row in rows]


class Pays:
    """Pays each response of the tabular world its reward, to a millionth."""

    version = "pays"

    def __init__(self, rewards):
        self.stats, texts = JudgeStats(), ("".join(map(str, r)) for r in RESPONSES.tolist())
        self.passed = dict(zip(texts, ((1 + rewards) * 1e6).round().int().tolist(), strict=True))

    def judge(self, submissions):
        passed = (self.passed[submission.response] for submission in submissions)
        return [Judgement(Verdict.WRONG_ANSWER, n, 10**6, 10**6, "") for n in passed]


@pytest.mark.parametrize("soft", [False, True])
def test_values_of_prefixes_converge_to_enumeration(soft):
    """E_π r, or SPO's β log E_ref e^{r/β}, of all 13 prefixes; the error falls as 1/√K."""
    made, other = world(), torch.Generator().manual_seed(5)
    policy = torch.randn(made["reference"].shape, generator=other, dtype=torch.float64)
    table = made["reference"] if soft else policy
    logp, rewards, exact, cumulative = table_logp(table), made["rewards"], {}, {}
    for response, rows in zip(RESPONSES.tolist(), ROWS.tolist(), strict=True):
        for t, row in enumerate(rows):
            prefix, same = tuple(response[:t]), ROWS[:, t] == row
            weights = logp[same, t:].sum(-1).exp()
            value = BETA * (weights * (rewards[same] / BETA).exp()).sum().log()
            exact[prefix] = float(value if soft else (weights * rewards[same]).sum())
            cumulative[prefix] = table[row].softmax(-1).cumsum(-1).tolist()

    def more(prefix, seed):
        whole, numbers = prefix, uniforms([seed], 3)[0].tolist()
        while len(whole) < 3:
            whole += (sum(numbers[len(whole)] > edge for edge in cumulative[whole][:2]),)
        return whole[len(prefix) :]

    writer, paid = Writer(more, "012"), RewardConfig(kind="fraction", low=-1.0, high=0.0)
    responder = Responder(writer, Pays(rewards), writer, paid, overlap=False)
    samples, off = [sample_of((*prefix, 0)) for prefix in exact], []
    cuts, true = [[len(prefix)] for prefix in exact], torch.tensor(list(exact.values()))
    for k in (64, 4096):
        found = continued_rewards(responder, Sampling(3), samples, cuts, k, "seed")
        drawn = torch.tensor(found, dtype=torch.float64).squeeze(1)
        means = BETA * (drawn / BETA).exp().mean(-1).log() if soft else drawn.mean(-1)
        if not soft:
            z = (means - true) / torch.tensor([estimate(0, each).error for (each,) in found])
            assert z.abs().max() < 4 and float(z.square().mean()) == pytest.approx(1, abs=0.9)
        off.append(float((means - true).square().mean().sqrt()))
    assert off[1] < off[0] / 4 and off[1] < 0.01


def test_where_responses_are_cut(nano):
    """Lines that are not blank are steps, and the end belongs to the last one."""
    text, tokenizer = "```python\n\nn = int(input())\nprint(n)\n```\n", nano[1]
    tokens = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    cuts = cut_points(sample_of(tokens), Steps("line", 1, 1), tokenizer)
    steps = [tokenizer.decode(tokens[a:b]) for a, b in itertools.pairwise([*cuts, len(tokens)])]
    assert [step.strip() for step in steps[:-1]] == ["```python", "n = int(input())", "print(n)"]
    assert steps[-1].startswith("```") and cuts[0] == 0
    assert cut_points(sample_of(tokens), Steps("line", 2, 1), tokenizer) == cuts[::2]
    sample = sample_of(range(5), [math.log(p) for p in (0.95, 0.5, 0.91, 0.89, 0.1)])
    expected = {("unlikely", 1): [1, 3, 4], ("unlikely", 2): [1, 4], ("token", 3): [0, 3]}
    for (kind, every), places in expected.items():
        assert cut_points(sample, Steps(kind, every, 1), tokenizer) == places


def test_equal_prefixes_and_programs_count_once_and_tokens_are_charged():
    words = {1: "n = int(input())\n", 2: "n += 1\n", 3: "print(n)", 4: "print(n - 1)", 5: ""}
    tests = {name: Test(f"{name}\n", f"{name}\n") for name in "27"}
    prompts = [PromptedProblem(Problem(n, "", (), (test,)), (9, 9)) for n, test in tests.items()]
    responses = [(1, 3, 5), (1, 2, 4, 5), (1, 3, 5)]
    samples = [sample_of(r, prompt=prompts[i // 2]) for i, r in enumerate(responses)]
    writer = Writer(lambda prefix, seed: (3 + seed % 2,), words)
    ledger = Ledger(model=ModelFlops(blocks=1, head=0))
    with EmbeddedSandbox(1) as sandbox:
        at = Responder(writer, Judge(sandbox), writer, RewardConfig(), False, ledger)
        valued, measured = PrefixValues(at, Sampling(9), Steps("line", 1, 20), 3).add(samples, 7)
        (request,) = writer.requests
        # of "2" (), (1,) and (1, 2), where two responses share the first two; of "7" () and (1,)
        assert [len(group) for group in request.seeds] == [60, 40]
        assert len({seed for group in request.seeds for seed in group}) == 100
        assert at.judge.stats.programs_judged == 2 * 3 + 2 * 2
        assert ledger.counts.prefix_tokens == 100 and ledger.counts.generated_tokens == 0
        # read once are (9, 9, 1) twice and of (9, 9, 1, 2) the end, without their last tokens
        assert ledger.counts.flops == 2 * (2 + (3 - 1) + 2 + 100)
        ended = continued_rewards(at, Sampling(9), samples[:2], [[3], [4]], 2, "seed")
        assert ended == [[[1.0, 1.0]], [[1.0, 1.0]]]  # their own reward
    assert valued[0].values == valued[1].values[:2]
    assert 0 < valued[0].values[1].mean < 1 and valued[0].values[0].mean == 0  # NameError: n
    assert measured["prefix/cuts"] == pytest.approx(7 / 3)
    mask = torch.arange(4) < torch.tensor([[3], [4], [3]])
    batch = with_step_values(judged_batch(valued, mask, 1, train_config()), valued)
    cut = ~batch.step_values.isnan()
    assert cut.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]]
    assert batch.step_values[0, 1].item() == pytest.approx(valued[0].values[1].mean)
    assert batch.step_errors[1, 2].item() == pytest.approx(valued[1].values[2].error)
