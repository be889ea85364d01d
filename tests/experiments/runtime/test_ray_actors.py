"""What an engine's actor keeps between calls, and how another one comes to it."""

from types import SimpleNamespace

import pytest

from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.policy.policy import Policy
from experiments.runtime.ray_actors import EngineActor

PROMPTS = [[2, 7, 9, 30], [2, 5]]


@pytest.fixture
def actor(tiny):
    """Make an actor, as if it had been opened."""

    def make():
        made = EngineActor()
        made._engine, made._version, made._kept = HFEngine(Policy(tiny), {1}, 0, 64), 0, 0
        made._tokenizer = SimpleNamespace(batch_decode=lambda rows, **_: ["" for _ in rows])
        return made

    return make


def test_an_actor_in_the_place_of_another_repeats_what_it_has_to_keep(actor):
    first = Request(PROMPTS, [[1, 2], [3]], Sampling(8), None, True)
    other = Request([[4, 4]], [[5]], Sampling(8), None, True)  # of another part
    began, late = actor(), actor()
    groups = began.generate(0, [], True, first, []).groups
    began.generate(0, [], True, other, [first])
    begun = [[[*answer.tokens, 7] for answer in group] for group in groups]
    second = Request(PROMPTS, [[11, 12], [13]], Sampling(8), begun, False)
    found = [one.generate(0, [], True, second, [first, other]).groups for one in (began, late)]
    assert found[0] == found[1]
    assert len(began._engine._kept) == len(late._engine._kept) == 1  # of the other part
    anew = actor().generate(0, [], True, second, []).groups
    assert [[a.tokens for a in group] for group in anew] == [
        [a.tokens for a in group] for group in found[0]
    ]
    late.release_memory()
    assert (len(late._engine._kept), late._kept) == (0, 0)
