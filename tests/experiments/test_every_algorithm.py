"""Every name that `algo=` takes trains the bundled model, sandbox, record and report included."""

import math

import pandas as pd
import pytest

import algorithms
from analysis import report as command
from experiments.config.checks import validate
from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.trainer import train
from tests.compose import run_config, train_config

SMALL = [
    "task=mini",
    "steps=5",
    "train.prompts=2",
    "train.group_size=4",
    "task.train_problems=8",
    "task.choose_problems=4",
    "task.test_problems=4",
    "eval.every=0",
    "eval.samples=2",
    "eval.k=[1]",
    "sandbox=embedded",
]
TAKES_PROGRAMS = [name for name in algorithms.names() if algorithms.make(name).needs.off_policy]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Of all names: one report is made of them."""
    return tmp_path_factory.mktemp("outputs")


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithms.names())
def test_it_runs(name, outputs):
    runs(name, outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKES_PROGRAMS)
def test_it_runs_with_the_data_sets_programs(name, outputs):
    runs(name, outputs, "train.offline_share=0.5")


@pytest.mark.slow
def test_one_report_holds_them_all(outputs):
    wanted = len(algorithms.names()) + len(TAKES_PROGRAMS)
    made = len(list(outputs.glob("mini/*/run.json")))
    if made < wanted:
        pytest.skip(f"{made} of {wanted} runs were made by the tests above")
    assert command.main([f"runs={outputs}", f"out={outputs / 'report'}"]) == 0
    rows = pd.read_csv(outputs / "report" / "table.csv")
    assert len(rows[rows["step"] == 5]) == wanted
    page = (outputs / "report" / "report.html").read_text()
    assert all(name in page for name in algorithms.names())


def runs(name, folder, *options):
    outcome = train(config_of([f"algo={name}", *SMALL, f"output_dir={folder}", *options]))
    assert outcome.status == "finished", outcome.error
    metrics = pd.read_parquet(outcome.folder / "metrics.parquet")
    kept = metrics["kept_share"] > 0
    assert len(metrics) == 5
    assert metrics["loss"][kept].map(math.isfinite).all()


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - set(TAKES_PROGRAMS)))
def test_it_refuses_programs_without_the_log_probs_that_it_would_need(name):
    algorithm = algorithms.make(name)
    config = run_config(algorithm.config, train=train_config(offline_share=0.5))
    with pytest.raises(UserError, match=rf"train.offline_share=0.5 under algo={name}: "):
        validate(config, algorithm.needs)


@pytest.mark.parametrize(
    "name", [n for n in algorithms.names() if algorithms.make(n).needs.max_lag is not None]
)
def test_it_refuses_an_older_writer_unless_told(name):
    told = rf"train.sync_every=3 under algo={name}: .*steps behind, .*; lower it"
    stale, algorithm = train_config(sync_every=3), algorithms.make(name)
    is_adjustable = "max_lag" in algorithms.defaults(name)  # else a constant of its needs
    told += r", or allow more with algo\.max_lag=2$" if is_adjustable else "$"
    with pytest.raises(UserError, match=told):
        validate(run_config(algorithm.config, train=stale), algorithm.needs)
    if is_adjustable:
        tolerant = algorithms.make(name, max_lag=2)
        validate(run_config(tolerant.config, train=stale), tolerant.needs)


@pytest.mark.parametrize("name", [n for n in algorithms.names() if algorithms.make(n).needs.groups])
def test_it_refuses_groups_too_small_to_compare(name):
    algorithm = algorithms.make(name)
    least = algorithm.needs.groups
    config = run_config(algorithm.config, train=train_config(group_size=least - 1))
    with pytest.raises(UserError, match=f"use at least {least}"):
        validate(config, algorithm.needs)


@pytest.mark.parametrize("name", algorithms.names())
def test_it_takes_shaped_rewards_or_says_why_not(name):
    algorithm = algorithms.make(name)
    needs = algorithm.needs
    for key, value in (("dither", 0.05), ("conciseness", 1.0)):
        config, given = run_config(algorithm.config), f"task.reward.{key}={value}"
        setattr(config.task.reward, key, value)
        if needs.best_reward or needs.initial_value != "none":
            with pytest.raises(
                UserError, match=f"{given} under algo={name}: it needs to know which"
            ):
                validate(config, needs)
        else:
            validate(config, needs)
