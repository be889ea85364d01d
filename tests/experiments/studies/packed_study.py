"""A small study with its report, packed into a repository of its own."""

import json
import shutil

import pandas as pd

from analysis.report import main as report
from analysis.runs import load_run
from experiments.studies.pack import main as pack
from experiments.studies.study import read
from experiments.studies.write import main as write

STUDY = """
question: which is better
seeds: [0, 1]
overrides: [steps=20]
arms:
  ppo: {overrides: [algo=ppo]}
  spo-x_1.5: {overrides: [algo=spo]}
claims:
  - {says: SPO above PPO, a: spo-x_1.5, b: ppo, metric: pass@1}
  - {says: SPO above PPO when hot, a: spo-x_1.5, b: ppo, metric: pass@10 (T=1)}
  - {says: SPO is faster, a: spo-x_1.5, b: ppo, metric: time}
  - {says: SPO is smaller, a: spo-x_1.5, b: ppo, metric: memory}
gains: [[spo-x_1.5, ppo]]
threats: [small]
"""
SKILL = {"ppo": 4.0, "spo-x_1.5": 8.0}


def make_study(root, make_run, add_further, named=()):
    """Write s.yaml and study-s/ with run folders, arms.json and report/ below `root`.

    `named`: what the study names for its report, as ("margin=0.05",).
    """
    (root / "s.yaml").write_text(STUDY + "".join(f"{one.replace('=', ': ')}\n" for one in named))
    folder, arms = root / "study-s", []
    for arm, skill in SKILL.items():
        for seed in (0, 1):
            algo = arm.partition("-")[0]
            config = {"eval.further_temperatures": [], "eval.split": "choose"}
            path = make_run(root, algo, seed, skill=skill, config=config)
            metrics = pd.read_parquet(path / "metrics.parquet")
            metrics["memory/peak_mb"] = 100.0 + 10 * seed + len(arm)
            metrics.to_parquet(path / "metrics.parquet", index=False)
            evals = load_run(path).evals
            add_further(path, 1.0, evals[evals["step"] != 10].sample(frac=1, random_state=seed))
            (path / "checkpoints" / "final").mkdir(parents=True)
            for name in ("model.safetensors", "state.pt"):
                (path / "checkpoints" / "final" / name).write_bytes(b"weights")
            one = {"arm": arm, "seed": seed, "trial": False, "status": "finished", "score": None}
            arms.append(one | {"run": f"study-s/{path.name}", "overrides": []})
    (root / "compare").rename(folder)
    arms.append(arms[0] | {"seed": 2, "status": "failed", "run": "study-s/ppo-2"})
    (folder / "arms.json").write_text(json.dumps(arms))
    (folder / "contrasts.json").write_text(json.dumps(read(str(root / "s.yaml")).contrasts))
    make_report(folder, named)
    return folder


def make_report(folder, named=()):
    assert report([f"runs={folder}", f"out={folder / 'report'}", *named]) == 0


def make_repository(root, folder):
    """Pack the study into docs/results/ below `root`, and write its page from the counts."""
    packed = root / "docs" / "results" / "study-s"
    study = f"study={folder.parent}/s.yaml"
    assert pack([study, f"folder={folder}", f"out={packed}"]) == 0
    assert write([study, f"folder={packed}", f"out={packed.with_suffix('.md')}"]) == 0
    return packed


def copy_of(repository, tmp_path):
    return shutil.copytree(repository, tmp_path / "repository")
