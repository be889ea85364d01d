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
from experiments.engines.base import Engine, Sampling, draw, uniforms
from experiments.rollout.generate import Responder
from experiments.rollout.prefixes import PrefixValues, continued_rewards, cut_points, estimate
from experiments.run_dir.ledger import Ledger, ModelFlops
from experiments.sample import Completion, Origin, PromptedProblem, Sample
from tests.algorithms import tabular
from tests.algorithms.tabular import BETA, LENGTH, RESPONSES, ROWS, table_logp

PAYS = RewardConfig(kind="fraction", low=-1.0, high=0.0)
WRONG = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")


def sample_of(tokens, reward=0.0, logps=None, prompt=None):
    prompt = prompt or PromptedProblem(Problem("p", "", (), ()), (9, 9))
    return Sample(prompt, tuple(tokens), logps, WRONG, reward, False, Origin("policy", "run", 1, 0))


class Table(Engine):
    """Generates with a tabular policy."""

    name, policy, version = "table", None, 0

    def __init__(self, table):
        self.rows = {
            tuple(r[:t].tolist()): table[i]
            for r, rows in zip(RESPONSES, ROWS, strict=True)
            for t, i in enumerate(rows)
        }

    def generate(self, request, finished=None):
        assert request.continues
        groups = []
        for seeds, begun in zip(request.seeds, request.begun, strict=True):
            tokens, numbers = list(begun), uniforms(seeds, LENGTH)
            for t in range(min(map(len, begun)), LENGTH):
                row = {prefix: i for i, prefix in enumerate(dict.fromkeys(tokens))}
                logits = torch.stack([self.rows[p] if len(p) == t else torch.zeros(3) for p in row])
                of = torch.tensor([row[prefix] for prefix in tokens])
                drawn = draw(logits, of, numbers[:, t], request.sampling)[0].tolist()
                tokens = [(*p, d) if len(p) == t else p for p, d in zip(tokens, drawn, strict=True)]
            ends = [whole[len(b) :] for whole, b in zip(tokens, begun, strict=True)]
            groups.append([Completion(e, (0.0,) * len(e), 0.0, True, 0) for e in ends])
        return groups


class Numbers:
    """A tokenizer whose tokens are digits."""

    def batch_decode(self, rows, skip_special_tokens):
        return ["".join(map(str, row)) for row in rows]


class Pays:
    """Pays each response of the tabular world its reward, to a millionth."""

    version = "pays"

    def __init__(self, rewards):
        self.stats = JudgeStats()
        texts = ["".join(map(str, response)) for response in RESPONSES.tolist()]
        self.passed = dict(zip(texts, ((1 + rewards) * 1e6).round().int().tolist(), strict=True))

    def judge(self, submissions):
        passed = (self.passed[submission.response] for submission in submissions)
        return [Judgement(Verdict.WRONG_ANSWER, n, 10**6, 10**6, "") for n in passed]


PREFIXES = [p for t in range(LENGTH) for p in itertools.product(range(3), repeat=t)]


@pytest.mark.parametrize("kind", ["of the policy", "soft, of the reference"])
def test_values_of_prefixes_converge_to_enumeration(kind):
    """E_π r, and SPO's β log E_ref e^{r/β}, of all 13 prefixes; the error falls as 1/√K."""
    world = tabular.world()
    soft, generator = "soft" in kind, torch.Generator().manual_seed(5)
    policy = torch.randn(world["reference"].shape, generator=generator, dtype=torch.float64)
    table = world["reference"] if soft else policy
    logp, exact = table_logp(table), []
    for prefix in PREFIXES:
        t = len(prefix)
        goes_on = (RESPONSES[:, :t] == torch.tensor(prefix)).all(-1)
        weights, paid = logp[goes_on, t:].sum(-1).exp(), world["rewards"][goes_on]
        soft_value = BETA * (weights * (paid / BETA).exp()).sum().log()
        exact.append(float(soft_value if soft else (weights * paid).sum()))
    engine, judge = Table(table), Pays(world["rewards"])
    responder = Responder(engine, judge, Numbers(), PAYS, overlap=False)
    samples = [sample_of((*prefix, 0)) for prefix in PREFIXES]
    cuts, worst = [[len(prefix)] for prefix in PREFIXES], []
    for k in (64, 4096):
        found = continued_rewards(responder, Sampling(LENGTH), samples, cuts, k, "seed")
        rewards = torch.tensor(found, dtype=torch.float64).squeeze(1)
        means, errors = rewards.mean(-1), torch.tensor([estimate(0, r[0]).error for r in found])
        if soft:
            means = (rewards / BETA).exp().mean(-1).log() * BETA
        else:
            z = (means - torch.tensor(exact)) / errors
            assert z.abs().max() < 4 and float(z.square().mean()) == pytest.approx(1, abs=0.9)
        worst.append(float((means - torch.tensor(exact)).square().mean().sqrt()))
    assert worst[1] < worst[0] / 4 and worst[1] < 0.01


@pytest.fixture(scope="module")
def program(nano):
    """A response of five lines, and the tokenizer."""
    text = "```python\n\nn = int(input())\nprint(n)\n```\n"
    tokens = nano[1](text, add_special_tokens=False)["input_ids"]
    return [*tokens, nano[1].eos_token_id], nano[1]


def test_lines_that_are_not_blank_are_steps_and_the_end_belongs_to_the_last(program):
    tokens, tokenizer = program
    cuts = cut_points(sample_of(tokens), Steps("line", 1, 1), tokenizer)
    steps = [tokenizer.decode(tokens[a:b]) for a, b in itertools.pairwise([*cuts, len(tokens)])]
    assert [step.strip() for step in steps[:-1]] == ["```python", "n = int(input())", "print(n)"]
    assert steps[-1].startswith("```") and "".join(steps) == tokenizer.decode(tokens)
    assert cut_points(sample_of(tokens), Steps("line", 2, 1), tokenizer) == cuts[::2]


def test_unlikely_tokens_are_cut_before(program):
    logps = [math.log(p) for p in (0.95, 0.5, 0.91, 0.89, 0.1)]
    sample = sample_of(range(5), logps=logps)
    assert cut_points(sample, Steps("unlikely", 1, 1), program[1]) == [1, 3, 4]
    assert cut_points(sample, Steps("unlikely", 2, 1), program[1]) == [1, 4]
    assert cut_points(sample, Steps("token", 3, 1), program[1]) == [0, 3]


class Endings(Engine):
    """Ends a response with one of two texts, by the seed."""

    name, policy, version = "endings", None, 0

    def __init__(self):
        self.requests = []

    def generate(self, request, finished=None):
        self.requests.append(request)
        return [
            [Completion((50 + s % 2,), (0.0,), 0.0, False, 0) for s in g] for g in request.seeds
        ]


WORDS = {1: "n = int(input())\n", 2: "n += 1\n", 50: "print(n)", 51: "print(n - 1)"}


class Words:
    """A tokenizer of whole lines; other tokens stand for nothing."""

    def batch_decode(self, rows, skip_special_tokens):
        return ["".join(WORDS.get(token, "") for token in row) for row in rows]


def test_equal_prefixes_and_programs_count_once_and_tokens_are_charged(tmp_path):
    tests = {name: Test(f"{name}\n", f"{name}\n") for name in "25"}
    prompts = [PromptedProblem(Problem(n, "", (), (test,)), (9, 9)) for n, test in tests.items()]
    responses = [(1, 50, 60), (1, 2, 51, 60), (1, 50, 60)]
    samples = [sample_of(r, reward=1.0, prompt=prompts[i // 2]) for i, r in enumerate(responses)]
    engine, ledger = Endings(), Ledger(model=ModelFlops(blocks=1, head=0))
    with EmbeddedSandbox(1) as sandbox:
        judge = Judge(sandbox)
        at = Responder(engine, judge, Words(), RewardConfig(), False, ledger)
        values = PrefixValues(at, Sampling(9), Steps("line", 1, 20), 3, tmp_path)
        valued, measured = values.add(samples, 7)
        (request,) = engine.requests
        # of "2" (), (1,) and (1, 2), where two responses share the first two; of "5" () and (1,)
        assert [len(group) for group in request.seeds] == [60, 40]
        assert len({seed for group in request.seeds for seed in group}) == 100
        assert judge.stats.programs_judged == 2 * 3 + 2 * 2
        assert ledger.counts.prefix_tokens == 100 and ledger.counts.generated_tokens == 0
        # read once are (9, 9, 1) twice and (9, 9, 1, 2), without their last tokens
        assert ledger.counts.flops == 2 * (2 + 3 + 2 + 100)
        ended = continued_rewards(at, Sampling(9), samples, [[3], [4], [0]], 2, "seed")
        assert ended[:2] == [[[1.0, 1.0]], [[1.0, 1.0]]]  # their own reward
    cuts = [[value.cut for value in sample.values] for sample in valued]
    assert cuts == [[0, 1], [0, 1, 2], [0, 1]]
    assert valued[0].values == valued[1].values[:2] != valued[2].values
    assert 0 < valued[0].values[1].mean < 1 and valued[0].values[0].mean == 0  # NameError: n
    assert measured["prefix/cuts"] == pytest.approx(7 / 3)
    again, _ = PrefixValues(at, Sampling(9), Steps("line", 1, 20), 3).add(samples[:0], 7)
    assert again == []
