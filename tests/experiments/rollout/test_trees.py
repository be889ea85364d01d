"""Trees of responses: what is shared, who learns from it, and what its nodes are worth."""

from statistics import fmean

import pytest
import torch

from algorithms.base import Steps
from envs.problem import Judgement, JudgeStats, Problem, Verdict
from envs.reward import RewardConfig
from experiments.engines.base import Engine, Sampling, uniforms
from experiments.rollout.generate import Responder
from experiments.rollout.prefixes import grow
from experiments.run_dir.ledger import Ledger, ModelFlops
from experiments.sample import Completion, Origin, PromptedProblem, seed_for
from tests.algorithms.tabular import RESPONSES, ROWS, table_logp, world

PROMPTS = [PromptedProblem(Problem(name, "", (), ()), (9, 9)) for name in "pq"]
END = 0


class Writer(Engine):
    """Draws tokens by `token(prefix, seed)`, up to the end or the limit; its own tokenizer."""

    name, policy, version = "writer", None, 0

    def __init__(self, token):
        self.token, self.asked, self.requests, self.read = token, [], 0, set()

    def generate(self, request, finished=None):
        assert request.continues
        self.requests += 1
        for row, (prompt, begun) in enumerate(zip(request.prompts, request.begun, strict=True)):
            contexts = [(*prompt, *prefix) for prefix in begun]
            read = ((self.requests, row, c[:i]) for c in contexts for i in range(1, len(c)))
            self.read |= set(read)
        pairs = zip(request.begun, request.seeds, strict=True)
        return [list(map(self._one, b, s, [request] * len(s))) for b, s in pairs]

    def _one(self, begun, seed, request):
        self.asked.append((tuple(begun), seed))
        whole, left = tuple(begun), request.tokens_left(begun)
        while left and whole[-1:] != (END,):
            whole, left = (*whole, self.token(whole, seed)), left - 1
        end = whole[len(begun) :]
        return Completion(end, (-0.5,) * len(end), 0.0, whole[-1] != END, 0)

    def batch_decode(self, rows, skip_special_tokens):
        return [repr(tuple(row)) for row in rows]


class Pays:
    """Pays a response the function of its tokens, in millionths."""

    version = "pays"

    def __init__(self, reward):
        self.stats, self.reward = JudgeStats(), reward

    def judge(self, submissions):
        paid = (round(1e6 * self.reward(eval(one.response))) for one in submissions)
        return [Judgement(Verdict.WRONG_ANSWER, n, 10**6, 10**6, "") for n in paid]


def grown(token, reward, steps, limit, prompts=PROMPTS, seed=0):
    writer, size = Writer(token), 1
    for branch in steps.branches:
        size *= branch
    paid = RewardConfig(kind="fraction")
    ledger = Ledger(model=ModelFlops(blocks=1, head=0))
    at = Responder(writer, Pays(reward), writer, paid, False, ledger)
    seeds = [[seed_for(seed, p.problem.name, n) for n in range(size)] for p in prompts]
    samples = grow(at, prompts, seeds, Sampling(limit), Origin("policy"), steps)
    # In each request what its prefixes have in common is read once.
    generated = sum(sample.generated for sample in samples)
    assert ledger.counts.flops == 2 * (len(writer.read) + generated)
    return samples, writer, seeds


def random_token(prefix, seed):
    return 1 + seed_for(seed, len(prefix)) % 3


def share_of_ones(tokens):
    return fmean(token == 1 for token in tokens)


def test_siblings_share_what_comes_before_and_each_segment_is_learned_from_once():
    steps = Steps("tree", 2, 0, (2, 3, 2))
    samples, writer, seeds = grown(random_token, share_of_ones, steps, 7)
    groups = [samples[:12], samples[12:]]
    assert len(writer.asked) == 2 * (2 + 6 + 12)
    for group, own in zip(groups, seeds, strict=True):
        parts = []
        for number, sample in enumerate(group):
            given = sample.turns[0].observation if sample.turns else 0
            # six places go on from the first segment, two from the second
            assert given == (4 if number % 2 else 2 if number % 6 else 0)
            assert len(sample.tokens) == len(sample.logps) == 7 and sample.generated == 7 - given
            assert sample.tokens[:2] == group[number - number % 6].tokens[:2]
            assert sample.tokens[:4] == group[number - number % 2].tokens[:4]
            # an own token is drawn by the own stream of its segment
            streams = [seed_for(own[number], depth) for depth in (1, 1, 2, 2, 3, 3, 3)]
            expected = [random_token(range(t), streams[t]) for t in range(given, 7)]
            assert sample.tokens[given:] == tuple(expected)
            parts.append(sample.own if given else [True] * 7)
        assert sum(map(sum, parts)) == 2 * 2 + 6 * 2 + 12 * 3
        leaf = [share_of_ones(sample.tokens) for sample in group]
        second = [fmean(leaf[at : at + 2]) for at in range(0, 12, 2)]
        first = [fmean(second[at : at + 3]) for at in (0, 3)]
        for number, sample in enumerate(group):
            values = {0: fmean(first), 2: first[number // 6], 4: second[number // 2]}
            begins = 4 if number % 2 else 2 if number % 6 else 0
            expected = {cut: value for cut, value in values.items() if cut >= begins}
            assert {v.cut: v.mean for v in sample.values} == pytest.approx(expected, abs=1e-6)


def test_a_response_that_ends_early_stands_in_all_places_of_its_branch():
    """And its copies teach nothing; the siblings' mean does not depend on where a branch ends."""

    def token(prefix, seed):
        return END if (prefix and prefix[0] == 1) else 1 + (len(prefix) == 0 and seed % 2)

    steps = Steps("tree", 2, 0, (2, 2))
    for seed in range(9):
        group, writer, seeds = grown(token, lambda r: r[0] == 1, steps, 6, PROMPTS[:1], seed)
        first = [seed_for(own, 1) for own in (seeds[0][0], seeds[0][2])]
        lengths = [2 if own % 2 == 0 else 6 for own in first]
        assert [len(sample.tokens) for sample in group] == [*lengths[:1] * 2, *lengths[1:] * 2]
        assert len(writer.asked) == 2 + 2 * (lengths[0] > 2) + 2 * (lengths[1] > 2)
        for number, sample in enumerate(group):
            copied, short = number % 2, len(sample.tokens) == 2
            assert sample.truncated is not short
            assert sample.generated == len(sample.tokens) - 2 * copied
            cuts = [] if copied and short else [2] if copied else [0] if short else [0, 2]
            assert [v.cut for v in sample.values] == cuts
        assert group[0].values[0].mean == fmean(length == 2 for length in lengths)


def test_the_gradient_of_a_tree_is_that_of_the_expected_reward():
    """Of each segment: siblings are compared with their own mean, so (b − 1) times per parent."""
    made = world()
    table, rewards = made["reference"].clone().requires_grad_(True), made["rewards"]
    logp, cumulative = table_logp(table), {}
    paid = dict(
        zip(map(tuple, RESPONSES.tolist()), (rewards - rewards.min()).tolist(), strict=True)
    )
    scale = max(paid.values())
    rows = {}
    for response, own in zip(RESPONSES.tolist(), ROWS.tolist(), strict=True):
        for t, row in enumerate(own):
            rows[tuple(response[:t])] = row
            cumulative[tuple(response[:t])] = table[row].softmax(-1).cumsum(-1).tolist()

    def token(prefix, seed):
        number = uniforms([seed], 3)[0].tolist()[len(prefix)]
        return 10 + sum(number > edge for edge in cumulative[tuple(t - 10 for t in prefix)][:2])

    def reward(tokens):
        return paid[tuple(t - 10 for t in tokens)] / scale

    true = torch.autograd.grad(logp.sum(-1).exp() @ rewards / scale, table, retain_graph=True)[0]
    steps, scores = Steps("tree", 1, 0, (3, 2, 2)), []
    for seed in range(800):
        samples, *_ = grown(token, reward, steps, 3, PROMPTS[:1], seed)
        score = torch.zeros_like(table)
        for sample in samples:
            values = {v.cut: v.mean for v in sample.values} | {3: sample.reward}
            for t in range(3 - sample.generated, 3):
                row = rows[tuple(x - 10 for x in sample.tokens[:t])]
                one_hot = torch.nn.functional.one_hot(torch.tensor(sample.tokens[t] - 10), 3)
                gradient = one_hot - table.detach()[row].softmax(-1)
                # 2 of 3 siblings under one root; 1 of 2 under three nodes; 1 of 2 under six
                score[row] += (values[t + 1] - values[t]) * gradient / (2, 3, 6)[t]
        scores.append(score)
    drawn = torch.stack(scores)
    noise, often = drawn.std(0) / len(drawn) ** 0.5, (drawn != 0).sum(0) > 50
    errors = ((drawn.mean(0) - true) / noise)[often]
    assert len(errors) > 25 and errors.abs().max() < 4.5 and errors.square().mean() < 2
    assert (true / noise)[often].abs().max() > 10  # it would be seen to be another
