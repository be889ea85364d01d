"""Run folders like those of `experiments.run_dir.records`, their numbers from a small model of one.

Each problem has a difficulty and a pool of right programs; training raises the chance to be right
by `skill` and draws from the pool ever more unevenly by `collapse`.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from analysis.groups import group_runs
from analysis.runs import load_run

RIGHT = (
    "a = list(map(int, input().split()))\nprint(sum(x for x in a if x > {k}))",
    "t = 0\nfor x in input().split():\n    if int(x) > {k}:\n        t += int(x)\nprint(t)",
    "print(sum(filter(lambda x: x > {k}, map(int, input().split()))))",
    "import sys\nd = [int(w) for w in sys.stdin]\nprint(sum(w for w in d if w > {k}))",
    "s = 0\nfor w in map(int, input().split()):\n    s += w * (w > {k})\nprint(s)",
    "a = [int(x) for x in input().split()]\na = [x for x in a if x > {k}]\nprint(sum(a))",
    "print(sum(int(x) for x in input().split() if int(x) > {k}))",
    "a = sorted(map(int, input().split()))\nwhile a and a[0] <= {k}:\n    a.pop(0)\nprint(sum(a))",
)
WRONG = ("print(0)", "a = input(", "print(max(map(int, input().split())))", "x = int(input())")
TIERS = ("easy", "medium", "hard")
FAULTS = ("WRONG_ANSWER", "SYNTAX_ERROR", "WRONG_ANSWER", "RUNTIME_ERROR")


def synthetic_evals(random, problems, samples, steps, skill, collapse, trained_steps):
    """Rows of evals.parquet for the evaluations at `steps`."""
    rows = []
    hardness = np.random.default_rng(7).normal(3.4, 1.6, problems)
    rank = hardness.argsort().argsort()
    for step in steps:
        progress = step / max(trained_steps, 1)
        for i in range(problems):
            rate = 1 / (1 + np.exp(hardness[i] - skill * progress))
            pool = np.exp(-np.arange(len(RIGHT)) * (0.05 + collapse * progress))
            for sample in range(samples):
                right = random.random() < rate
                choice = random.choice(len(RIGHT), p=pool / pool.sum())
                wrong = random.integers(len(WRONG))
                program = RIGHT[choice].format(k=i) if right else WRONG[wrong]
                rows.append(
                    {
                        "step": step,
                        "problem": f"mini/test/{i:04d}",
                        "sample": sample,
                        "verdict": "ACCEPTED" if right else FAULTS[wrong],
                        "passed": 8 if right else int(random.integers(4)),
                        "total": 8,
                        "program": program,
                        "tokens": len(program) // 2,
                        "entropy": max(0.05, 0.9 - collapse * progress + random.normal(0, 0.05)),
                        "truncated": False,
                        "difficulty": TIERS[rank[i] * 3 // problems],
                        "tags": "filter,sum",
                        "cpu_s": 0.004,
                    }
                )
    return pd.DataFrame(rows)


def synthetic_metrics(random, steps, skill):
    """Rows of metrics.parquet."""
    step = np.arange(1, steps + 1)
    reward = 0.06 + 0.5 * (1 - np.exp(-step * skill / (2 * steps))) + random.normal(0, 0.05, steps)
    return pd.DataFrame(
        {
            "step": step,
            "reward_mean": reward.clip(0, 1),
            "accepted_share": reward.clip(0, 1),
            "loss": 0.5 - reward / 4,
            "kl_ref": step * 0.01,
            "budget/generated_tokens": step * 2560 + random.integers(0, 200, steps).cumsum(),
            "budget/reference_tokens": np.minimum(step * 1000, 40_000),
            "budget/judged_programs": step * 128,
            "budget/optimiser_steps": step,
            "time/waited_generate_s": step * 0.6,
            "time/waited_judge_s": step * 0.2,
            "time/waited_train_s": step * 0.3,
            "time/evaluate_s": step // 50 * 6.0,
            "time/total_s": step * 1.2 + random.random(steps).cumsum() * 0.1,
        }
    )


@cache  # tests make the same few runs again and again
def evals_of(algo, seed, *, problems, samples, every, steps, skill, collapse):
    """Rows of evals.parquet; runs of one seed share their base evaluation, as real ones do."""
    parts = []
    for step in range(0, steps + 1, every):
        random = np.random.default_rng([seed, step, *(algo.encode() if step else ())])
        parts.append(synthetic_evals(random, problems, samples, [step], skill, collapse, steps))
    return pd.concat(parts)


def config_of(folder, root, algo, seed, steps, samples, every, changes):
    """config.yaml as a mapping; `changes` has keys like "algo.beta"."""
    settings = {
        "seed": seed,
        "steps": steps,
        "output_dir": str(root),
        "name": folder.parent.name,
        "algo": {"name": algo, "beta": 0.1},
        "task": {"name": "mini"},
        "model": {"name": "nano"},
        "train": {"prompts": 16, "group_size": 8, "sync_every": 1},
        "eval": {"samples": samples, "temperature": 0.4, "top_p": 0.95, "every": every},
    }
    for key, value in changes.items():
        section, _, leaf = key.rpartition(".")
        (settings.setdefault(section, {}) if section else settings)[leaf] = value
    return settings


def info_of(algo, seed, status, changes):
    """run.json as a mapping."""
    return {
        "status": status,
        "error": None,
        "started": "2026-11-20T10:00:00+00:00",
        "ended": "2026-11-20T10:04:30+00:00",
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "commit": "0123abc",
        "data_hash": "d4ta",
        "judge_version": "1",
        "sandbox": "embedded: namespaces and seccomp",
        "hardware": {"cpu": "two cores"},
        "seed": seed,
        "algo": algo,
        "task": {"rows_read": 0},
        "model": "nano",
        **changes,
    }


@pytest.fixture(scope="session")
def make_run():
    """A function that writes a run folder and returns its path."""

    def make(
        root: Path,
        algo: str = "spo",
        seed: int = 0,
        *,
        steps: int = 20,
        problems: int = 12,
        samples: int = 20,
        every: int = 10,
        skill: float = 4.0,
        collapse: float = 0.2,
        status: str = "finished",
        config: dict | None = None,
        info: dict | None = None,
    ) -> Path:
        folder = root / "compare" / f"{algo}-{seed}"
        folder.mkdir(parents=True)
        sizes = {"problems": problems, "samples": samples, "every": every, "steps": steps}
        evals = evals_of(algo, seed, **sizes, skill=skill, collapse=collapse)
        evals.to_parquet(folder / "evals.parquet", index=False)
        random = np.random.default_rng([seed, *algo.encode()])
        synthetic_metrics(random, steps, skill).to_parquet(folder / "metrics.parquet", index=False)
        settings = config_of(folder, root, algo, seed, steps, samples, every, config or {})
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        (folder / "run.json").write_text(json.dumps(info_of(algo, seed, status, info or {})))
        return folder

    return make


@pytest.fixture
def groups(tmp_path, make_run):
    """Two seeds of PPO and of SPO."""
    paths = [make_run(tmp_path, algo, seed) for algo in ("ppo", "spo") for seed in (0, 1)]
    return group_runs([load_run(path) for path in paths])


def share(run, step):
    """Return pass@1 of a run's evaluation, by its definition."""
    samples = run.evaluation(step)
    return (samples["verdict"] == "ACCEPTED").groupby(samples["problem"]).mean().mean()


@pytest.fixture(scope="session")
def add_further():
    """A function that adds evaluations at a further temperature to a run folder."""

    def add(path: Path, temperature: float, evals: pd.DataFrame) -> None:
        folder = path / "further_evals.parquet"
        folder.mkdir(exist_ok=True)
        for step, part in evals.groupby("step"):
            name = f"step-{step:08}-temperature-{temperature:g}.parquet"
            part.assign(temperature=temperature).to_parquet(folder / name, index=False)
        config = yaml.safe_load((path / "config.yaml").read_text())
        config["eval"].setdefault("further_temperatures", []).append(temperature)
        (path / "config.yaml").write_text(yaml.safe_dump(config))

    return add
