"""A whole run's floating-point operations, by hand: no evaluation and no engine check in them."""

import json

import pandas as pd
import pytest

from experiments.learner.learner import Learner
from tests.experiments.test_trainer import run

BLOCKS = 3 * (4 * 128 * 128 + 3 * 128 * 384)  # weights of the bundled model's three blocks
HEAD = 1024 * 128


def forward(prompt, responses):
    """Operations of one prompt's pass, token by token; a token sees those before it and itself."""
    read = list(range(1, prompt))
    for response in responses:
        read += range(prompt, prompt + response)
    return sum(2 * BLOCKS + 3 * 4 * 128 * seen for seen in read) + 2 * HEAD * sum(responses)


@pytest.mark.slow  # a run of its own; the fast tests have each kind of pass and generation alone
def test_generation_reference_and_training_add_up(tmp_path, monkeypatch):
    batches, update = [], Learner.update

    def recorded(learner, samples, *rest):
        groups = {}
        for sample in samples:
            groups.setdefault(sample.prompt.problem.name, []).append(sample)
        batches.append(
            [(len(g[0].prompt.tokens), [len(s.tokens) for s in g]) for g in groups.values()]
        )
        names.update({name: len(g[0].prompt.tokens) for name, g in groups.items()})
        return update(learner, samples, *rest)

    names = {}
    monkeypatch.setattr(Learner, "update", recorded)
    settings = ["algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=4", "steps=2", "train.epochs=2"]
    folder = run(tmp_path, *settings)
    (cache,) = tmp_path.glob(".cache/reference_rewards/*.jsonl")
    rows = [json.loads(line) for line in cache.read_text().splitlines() if line]
    of_base = {row["problem"]: [r["tokens"] for r in row["responses"]] for row in rows}
    initial_values = sum(forward(names[name], of_base[name]) for name in names)
    passes = sum(forward(*group) for batch in batches for group in batch)
    generated, scored_by_reference, trained = passes, passes, 2 * 3 * passes
    spent = pd.read_parquet(folder / "metrics.parquet")["budget/flops"]
    assert spent.iloc[-1] == initial_values + generated + scored_by_reference + trained
    assert spent.is_monotonic_increasing
