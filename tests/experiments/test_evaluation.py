"""Evaluations: the base's cache, further temperatures, and kills among them."""

from types import SimpleNamespace

import pandas as pd
import pytest

from envs.problem import Judgement, JudgeStats, Verdict
from envs.reward import RewardConfig
from experiments.engines.base import Sampling
from experiments.errors import UserError
from experiments.evaluation import Evaluation
from experiments.rollout.generate import Responder
from experiments.run_dir.ledger import Ledger
from experiments.sample import Completion
from tests.experiments.compose import assert_same, finished
from tests.experiments.compose import config as config_of
from tests.experiments.rollout.stored import prompt

SMALL = [
    *("algo=grpo", "steps=2", "eval.every=1", "eval.samples=4", "eval.k=[1,2]"),
    *("eval.kl_samples=0", "train.prompts=2", "train.group_size=4", "train.checkpoint_every=1"),
    *("task.train_problems=6", "task.choose_problems=4", "task.test_problems=2"),
    *("task.tune_problems=2", "sandbox=embedded", "sandbox.workers=1"),
    *("task.max_response_tokens=32", "algo.learning_rate=1e-3"),
]
FURTHER = "eval.further_temperatures=[0,1]"


class Engine:
    description = "one"

    def generate(self, request, finished=None):
        return [[Completion((3,), (0.0,), 0.5, False, 0) for _ in group] for group in request.seeds]


@pytest.mark.parametrize(
    ("verdict", "by_wall_time", "kept"),
    [
        (Verdict.WRONG_ANSWER, 0, True),
        (Verdict.TIME_LIMIT, 0, True),
        (Verdict.TIME_LIMIT, 1, False),
        (Verdict.INFRA_ERROR, 0, False),
    ],
)
def test_the_base_is_evaluated_once_unless_a_verdict_is_uncertain(
    tmp_path, verdict, by_wall_time, kept
):
    asked = []

    def judge(submissions):
        asked.extend(submissions)
        return [Judgement(verdict, 0, 1, 1, "x") for _ in submissions]

    stats = JudgeStats(by_wall_time=by_wall_time)
    made = SimpleNamespace(version="1", stats=stats, judge=judge)
    words = SimpleNamespace(batch_decode=lambda rows, skip_special_tokens: ["x"] * len(rows))
    responder = Responder(Engine(), None, words, RewardConfig(), False)
    evaluation = Evaluation(
        *([prompt("p")], responder, Sampling(9, 0.5), 2, 0, Ledger()),
        base_judge=lambda: made,
        cache=tmp_path / "base",
        facts=(),
    )
    found = [evaluation.rows(0) for _ in range(2)]
    assert found[0][0] == found[1][0] and [row["entropy"] for row in found[0][0]] == [0.5, 0.5]
    assert [file is not None for _, file in found] == [False, kept]
    assert len(asked) == (2 if kept else 4)
    evaluation.rows(0, temperature=1.0)  # of its own
    assert len(asked) == (4 if kept else 6)


def test_samples_are_drawn_at_further_temperatures_and_all_else_is_the_same(tmp_path):
    plain, further = (finished(*SMALL, *more, f"output_dir={tmp_path}") for more in ([], [FURTHER]))
    rows, main = (pd.read_parquet(further / f"{n}.parquet") for n in ("further_evals", "evals"))
    assert sorted({*zip(rows["step"], rows["temperature"], strict=True)}) == [
        *((0, 0.0), (0, 1.0), (2, 0.0), (2, 1.0))
    ]
    assert list(rows.columns) == [*main.columns, "temperature"]
    programs = rows.groupby(["temperature", "step", "problem"])["program"].nunique()
    assert (programs[0.0] == 1).all()  # the most probable program, four times
    assert programs[1.0].mean() > 3
    assert_same(further, plain, "metrics", "evals", "problems")
    weights = "checkpoints/final/model.safetensors"
    assert (plain / weights).read_bytes() == (further / weights).read_bytes()


def test_each_temperature_has_random_streams_of_its_own(tmp_path, monkeypatch):
    asked, respond = [], Responder.respond

    def recorded(self, prompts, seeds, sampling, *rest):
        asked.append((sampling, {seed for group in seeds for seed in group}))
        return respond(self, prompts, seeds, sampling, *rest)

    monkeypatch.setattr(Responder, "respond", recorded)
    few = [*SMALL, f"output_dir={tmp_path}", "steps=0"]
    finished(*few, "eval.temperature=1", "eval.further_temperatures=[0.4]")
    finished(*few, "eval.further_temperatures=[1]")
    assert [sampling.temperature for sampling, _ in asked] == [1, 0.4, 0.4, 1]
    main, further, other_main, other_further = (seeds for _, seeds in asked)
    assert main == other_main and len(main) == 4 * 4
    # A further evaluation is never the main one of another run.
    assert len(main | further | other_further) == 3 * len(main)


@pytest.mark.parametrize(
    "value", ["[0.4]", "[1,1.0000001]", "[0.0,-0.0]", "[inf]", "[nan]", "[-1]"]
)
def test_impossible_temperatures_are_refused_by_name(value):
    with pytest.raises(UserError, match=r"eval\.further_temperatures") as caught:
        config_of(f"eval.further_temperatures=[{value}]")
    assert "\n" not in str(caught.value)
