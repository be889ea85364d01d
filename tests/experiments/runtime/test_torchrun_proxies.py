"""What each rank is sent; it generates for its share of the prompts, or releases memory."""

from types import SimpleNamespace

import pytest

from envs.problem import Judgement, Problem, Verdict
from experiments.engines.base import Request, Sampling
from experiments.runtime.torchrun_parts import ShardedEngine, _trimmed
from experiments.sample import Origin, PromptedProblem, Sample


class RecordingEngine:
    """An engine that records its calls."""

    def __init__(self):
        self.calls = []

    def generate(self, request, finished):
        prompts, begun = request.prompts, request.begun
        self.calls.append((prompts, begun, request.keep) if begun else prompts)
        return [f"to {prompt}" for prompt in prompts]

    def release_memory(self):
        self.calls.append("release_memory")


def generated(rank, size, prompts, *more):
    """Return what this rank generates for some prompts, and its engine's calls."""
    ranks = SimpleNamespace(rank=rank, size=size, targets={}, gather=lambda result: result)
    engine = RecordingEngine()
    sharded = ShardedEngine(ranks, "engine", engine, trained=None)
    request = Request(prompts, [[0]] * len(prompts), Sampling(4), *more)
    groups, error = sharded.generate_shard(request)
    assert error is None
    return groups, engine.calls


def test_rank_i_of_n_generates_for_every_nth_prompt():
    assert generated(1, 2, ["a", "b", "c", "d"]) == (["to b", "to d"], [["b", "d"]])


def test_a_conversation_goes_on_at_the_rank_that_began_it():
    begun = [[(1,)], [(2,)], [(3,)], [(4,)]]
    called = [(["b", "d"], [[(2,)], [(4,)]], True)]
    assert generated(1, 2, ["a", "b", "c", "d"], begun, True)[1] == called


@pytest.mark.parametrize("in_step", [True, False])
def test_what_is_kept_is_released_on_every_rank_that_still_takes_calls(in_step):
    called = []
    ranks = SimpleNamespace(targets={}, in_step=in_step, call=lambda *given: called.append(given))
    engine = RecordingEngine()
    ShardedEngine(ranks, "engine", engine, trained=None).release_memory()
    assert called == [("engine", "release_shard")] * in_step
    assert engine.calls == ["release_memory"] * (not in_step)


@pytest.mark.parametrize("verdict", [Verdict.ACCEPTED, Verdict.WRONG_ANSWER])
def test_other_ranks_get_a_samples_verdict_but_no_program_or_tests(verdict):
    problem = Problem("p", "add two numbers", (), ())
    judgement = Judgement(verdict, 1, 2, 2, "print(1)", detail="stderr")
    prompt, origin = PromptedProblem(problem, (3,)), Origin("policy", "run", 1, 0)
    sample = Sample(prompt, (4,), (-1.0,), judgement, 1.0, False, origin)
    sent = _trimmed(sample)
    assert sent.accepted is sample.accepted
    assert (sent.judgement.program, sent.judgement.detail) == ("", "")
    assert sent.prompt == PromptedProblem(Problem("p", "", (), ()), (3,))


def test_a_rank_without_prompts_releases_its_engines_memory():
    assert generated(2, 3, ["a", "b"]) == ([], ["release_memory"])
