"""Rollouts from prefixes: what a policy is rewarded with when it continues a response from a cut.

A cut t of a response is the state after its first t tokens; cut 0 is the prompt. The value of a cut
is estimated by k continuations from it: the mean of their rewards, with its standard error. The
engine that continues decides whose value it is. Continuations are judged like any response, and the
length limit is that of a response from its start. A response that has ended at a cut has its own
reward for a value. Prefixes that are equal are continued once, equal programs are judged once, and
what prefixes have in common is read once (`Request.continues`).

Or responses branch from one another, as in Segment PO's tree (2505.23564; `grow`).

A continuation's random numbers depend on the run's seed, the batch, the problem, the prefix and the
continuation's number, and on nothing else. So values are the same after a resume and however a run
is distributed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, takewhile
from operator import eq, itemgetter
from pathlib import Path
from statistics import fmean, stdev

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from algorithms.base import Steps
from algorithms.value_variants import UNLIKELY
from envs.problem import Submission
from experiments.engines.base import Request, Sampling
from experiments.replay import sample_log
from experiments.rollout.generate import Judging, Responder
from experiments.run_dir.ledger import Text
from experiments.sample import (
    Completion,
    Origin,
    PrefixValue,
    PromptedProblem,
    Sample,
    Turn,
    compute_reward,
    rewarded_samples,
    seed_for,
)

FOLDER = "prefix_values"  # of the run folder


def cut_points(sample: Sample, steps: Steps, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the cuts of a response: the first of each `steps.every` of those that `steps.cut` has.

    - token: before each token
    - line: at the start, and after each line that is not blank if another one follows; the lines
      of a response are its steps
    - unlikely: before each token of a probability below UNLIKELY when it was drawn
    """
    found = list(range(len(sample.tokens)))
    if steps.cut == "unlikely":
        assert sample.logps is not None  # else the configuration is refused
        found = [t for t in found if sample.logps[t] < math.log(UNLIKELY)]
    if steps.cut == "line":
        tokens = [[token] for token in sample.tokens]
        texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        written = [t for t in found if texts[t].strip()]
        found = found[:1]
        for t in range(1, len(texts)):
            begun = any(found[-1] <= w < t for w in written)
            if begun and "\n" in texts[t - 1] and written[-1] >= t:
                found.append(t)
    return found[:: steps.every]


def continued_rewards(
    responder: Responder,
    sampling: Sampling,
    samples: Sequence[Sample],
    cuts: Sequence[Sequence[int]],
    k: int,
    *seed: object,
) -> list[list[list[float]]]:
    """Return the rewards of k continuations of each sample from each of its cuts.

    Of a sample only prompt, tokens and reward are read. `responder` has the engine and the judge;
    its ledger is charged, if it has one. `seed` are the first parts of the random numbers' name. A
    continuation with an infrastructure error is left out; if none is left, the lowest reward is.
    """
    prompts = {sample.prompt.problem.name: sample.prompt for sample in samples}
    begun: dict[str, dict[tuple[int, ...], list[float]]] = {name: {} for name in prompts}
    texts = []  # read, then continued
    for sample, own in zip(samples, cuts, strict=True):
        name, ongoing = sample.prompt.problem.name, [t for t in own if t < len(sample.tokens)]
        if ongoing:
            prompt_length = len(sample.prompt.tokens)
            known = prompt_length - 1 if begun[name] else 0  # read for an earlier response
            texts.append(Text(prompt_length + max(ongoing), (), known))
        begun[name] |= {tuple(sample.tokens[:t]): [] for t in ongoing}
    owners = [(prompts[name], prefix) for name, of in begun.items() for prefix in of]
    asked = [name for name, of in begun.items() if of]
    request = Request(
        [prompts[name].tokens for name in asked],
        [[seed_for(*seed, name, p, n) for p in begun[name] for n in range(k)] for name in asked],
        sampling,
        [[prefix for prefix in begun[name] for _ in range(k)] for name in asked],
        continues=True,
    )
    with Judging(responder) as judging:
        ledger, activity = responder.ledger, responder.activity
        responder.engine.on_tokens = activity.draw
        with ledger.phase("generate") if ledger else nullcontext():
            activity.expect(len(owners) * k, "continuations")
            groups = responder.engine.generate(
                request, lambda responses: activity.advance(len(responses))
            )
        ends = [one.tokens for group in groups for one in group]
        whole = [[*owners[i // k][1], *end] for i, end in enumerate(ends)]
        decoded = responder.tokenizer.batch_decode(whole, skip_special_tokens=True) if whole else []
        judgements = judging.start(
            [Submission(owners[i // k][0].problem, text) for i, text in enumerate(decoded)]
        ).wait()
    for i, ((prompt, prefix), judgement) in enumerate(
        (owners[i // k], judgement) for i, judgement in enumerate(judgements)
    ):
        reward = compute_reward(judgement, responder.reward, len(whole[i]))
        if reward is not None:
            begun[prompt.problem.name][prefix].append(reward)
    if ledger:
        ledger.counts.prefix_tokens += sum(map(len, ends))
        for i, (prompt, prefix) in enumerate(owners):
            read = len(prompt.tokens) + len(prefix)
            lengths = [len(end) for end in ends[i * k : (i + 1) * k]]
            texts.append(Text(read, lengths, known=read - 1))
        ledger.charge_generation(texts)

    def rewards_at(sample: Sample, t: int) -> list[float]:
        if t >= len(sample.tokens):
            assert sample.reward is not None  # groups without one are left out
            return [sample.reward] * k
        return begun[sample.prompt.problem.name][tuple(sample.tokens[:t])] or [responder.reward.low]

    return [[rewards_at(s, t) for t in own] for s, own in zip(samples, cuts, strict=True)]


def estimate(cut: int, rewards: Sequence[float]) -> PrefixValue:
    """Return the mean of the rewards from a cut, and its standard error; NaN from a single one."""
    error = stdev(rewards) / len(rewards) ** 0.5 if len(rewards) > 1 else math.nan
    return PrefixValue(cut, fmean(rewards), error)


@dataclass(frozen=True)
class PrefixValues:
    """Values of the cuts of each batch's responses, under the policy that generated the batch."""

    responder: Responder
    sampling: Sampling
    steps: Steps  # of the algorithm's needs
    seed: int
    folder: Path | None = None  # the run folder, if the table is kept

    def add(self, samples: Sequence[Sample], step: int) -> tuple[list[Sample], dict[str, float]]:
        """Return the samples of batch `step` with their values, and metrics of these."""
        cuts = [cut_points(s, self.steps, self.responder.tokenizer) for s in samples]
        k, name = self.steps.continuations, (self.seed, "prefix", step)
        rewards = continued_rewards(self.responder, self.sampling, samples, cuts, k, *name)
        valued = [
            replace(sample, values=tuple(map(estimate, own, found)))
            for sample, own, found in zip(samples, cuts, rewards, strict=True)
        ]
        rows = [(number, value) for number, s in enumerate(valued) for value in s.values]
        if self.folder is not None:
            columns = {
                "step": pa.array([step] * len(rows), pa.int32()),
                "problem": [samples[number].prompt.problem.name for number, _ in rows],
                "response": pa.array([number for number, _ in rows], pa.int32()),  # of the batch
                "cut": pa.array([value.cut for _, value in rows], pa.int32()),
                "value": pa.array([value.mean for _, value in rows], pa.float64()),
                "error": pa.array([value.error for _, value in rows], pa.float64()),
            }
            sample_log.write_table(self.folder, FOLDER, step, pa.table(columns))
        if not rows:
            return valued, {}
        errors = [value.error for _, value in rows if not math.isnan(value.error)]
        error = fmean(errors) if errors else math.nan
        return valued, {"prefix/cuts": len(rows) / len(samples), "prefix/error": error}


# Trees: with branches (2, 3) a prompt has two first segments of `every` tokens, each of which is
# continued in three ways to its end: six responses. One that ends before its last segment stands in
# all places of its branch. The value of a node is the mean of its children's. A segment that
# responses share is generated once and is the own part of the first of them; in the others it is
# context, the observation of a first turn without an answer.


@dataclass
class Branch:
    """A response from the root to a leaf."""

    prompt: PromptedProblem
    seed: int
    whole: Completion
    given: int = 0  # first tokens, which are another response's
    cuts: list[int] = field(default_factory=list)  # where each of its segments begins
    ended: bool = False

    def extend(self, end: Completion, limit: int) -> None:
        """Append a segment. A response of `limit` tokens has ended."""
        self.cuts.append(len(self.whole.tokens))
        tokens, logps = self.whole.tokens + end.tokens, self.whole.logps + end.logps
        self.whole = replace(end, tokens=tokens, logps=logps)
        self.ended = not end.truncated or len(tokens) >= limit


def grow(
    responder: Responder,
    prompts: Sequence[PromptedProblem],
    seeds: Sequence[Sequence[int]],
    sampling: Sampling,
    origin: Origin,
    steps: Steps,
) -> list[Sample]:
    """Return the responses to each prompt, flat, with the values of the cuts in their own parts.

    `seeds`: for each prompt as many as the product of `steps.branches`. The random numbers of a
    segment come from its first response's seed and its depth. The ledger is charged.
    """
    empty = Completion((), (), math.nan, True, responder.engine.version)
    groups = [
        [Branch(prompt, seed, empty) for seed in own]
        for prompt, own in zip(prompts, seeds, strict=True)
    ]
    engine, ledger, blocks = responder.engine, responder.ledger, [math.prod(steps.branches)]
    engine.on_tokens = responder.activity.draw
    with Judging(responder) as judging:
        for depth, branch in enumerate(steps.branches, start=1):
            blocks.append(blocks[-1] // branch)
            last = depth == len(steps.branches)
            limit = sampling.max_tokens if last else min(sampling.max_tokens, steps.every * depth)
            nodes = [[path for path in of[:: blocks[-1]] if not path.ended] for of in groups]
            if not (asked := [of for of in nodes if of]):
                break
            responder.activity.expect(sum(map(len, asked)), "segments")
            request = Request(
                [of[0].prompt.tokens for of in asked],
                [[seed_for(path.seed, depth) for path in of] for of in asked],
                replace(sampling, max_tokens=limit),
                [[path.whole.tokens for path in of] for of in asked],
                continues=True,
            )
            with ledger.phase("generate") if ledger else nullcontext():
                ends = engine.generate(request)
            if ledger:
                ledger.charge_generation(_segment_texts(request, ends))
            found = chain.from_iterable(ends)
            for group in groups:
                for at in range(0, len(group), blocks[-1]):
                    first, *others = group[at : at + blocks[-1]]
                    if not first.ended:
                        first.extend(next(found), sampling.max_tokens)
                    for path in others:
                        same = (first.whole, len(first.whole.tokens), [*first.cuts], first.ended)
                        path.whole, path.given, path.cuts, path.ended = same
        paths = list(chain.from_iterable(groups))
        texts = responder.tokenizer.batch_decode(
            [list(path.whole.tokens) for path in paths], skip_special_tokens=True
        )
        pairs = zip(paths, texts, strict=True)
        judgements = judging.start([Submission(p.prompt.problem, text) for p, text in pairs]).wait()
    turns = [
        (Turn(0, path.given), Turn(len(path.whole.tokens) - path.given)) if path.given else ()
        for path in paths
    ]
    wholes = [path.whole for path in paths]
    owners = [path.prompt for path in paths]
    samples = rewarded_samples(owners, wholes, judgements, responder.reward, origin, turns)
    rewards = [responder.reward.low if s.reward is None else s.reward for s in samples]
    valued = []
    for number, (path, sample) in enumerate(zip(paths, samples, strict=True)):
        values = []
        for cut, block in zip(path.cuts, blocks, strict=False):  # one that ended has fewer cuts
            if path.given <= cut < len(path.whole.tokens):
                begin = number - number % block
                mean = fmean(rewards[begin : begin + block])  # of copies too, so without an error
                values.append(PrefixValue(cut, mean, math.nan))
        valued.append(replace(sample, values=tuple(values)))
    return valued


def _segment_texts(request: Request, ends: Sequence[Sequence[Completion]]) -> list[Text]:
    """Return the lengths read and generated: what prefixes have in common is read once."""
    assert request.begun is not None
    texts = []
    for prompt, begun, group in zip(request.prompts, request.begun, ends, strict=True):
        pairs = sorted(zip(begun, group, strict=True), key=itemgetter(0))
        last: Sequence[int] | None = None
        for prefix, siblings in groupby(pairs, key=itemgetter(0)):
            lengths = [len(end.tokens) for _, end in siblings]
            same = 0 if last is None else sum(takewhile(bool, map(eq, last, prefix)))
            known = 0 if last is None else len(prompt) + same
            texts.append(Text(len(prompt) + len(prefix), lengths, known))
            last = prefix
    return texts
