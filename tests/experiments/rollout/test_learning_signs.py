"""What a run cannot learn from is said, with the key to change; a sound batch says nothing."""

from dataclasses import replace

import pytest

from envs.problem import Judgement, Problem, Verdict
from experiments.rollout.learning_signs import LearningSigns
from experiments.sample import Origin, PromptedProblem, Sample
from tests.compose import run_config, train_config

PROBLEMS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (1,)) for i in range(2)]


def sample(problem, accepted, truncated=False, program="print(1)", **changes):
    verdict = Verdict.ACCEPTED if accepted else Verdict.WRONG_ANSWER
    made = Sample(
        prompt=PROBLEMS[problem],
        tokens=(2, 3),
        logps=(-1.0, -1.0),
        judgement=Judgement(verdict, int(accepted), 1, 1, program),
        reward=float(accepted),
        truncated=truncated,
        origin=Origin("policy", "run", 1, 0),
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([sample(0, True), sample(0, False), sample(1, False)], []),
        ([sample(0, False), sample(1, False)], ["no response was accepted"]),
        ([sample(0, True), sample(1, False)], ["train.group_size=8"]),
        (
            [sample(0, True), sample(0, False, truncated=True)] + [sample(1, False, True)] * 2,
            ["75% of the responses were cut off"],
        ),
    ],
)
def test_signs(batch, said):
    signs = LearningSigns(run_config())
    assert signs.lines() == []
    signs.note(batch)
    lines = signs.lines()
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))


def test_without_reward_the_data_sets_programs_teach():
    signs = LearningSigns(run_config(train=train_config(offline_share=0.5)))
    signs.note([sample(0, False), sample(0, False)])
    assert not any("no response was accepted" in line for line in signs.lines())
