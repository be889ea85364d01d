"""`make gpu-study`: a study in one sitting on one GPU, packed before its minutes are over.

    python -m experiments.gpu_study device=cuda minutes=9 out=FOLDER [arms=A,B] [KEY=VALUE ...]

It first prints which packages of pyproject.toml are missing here or have another version. Then it
trains the base model of 25 M, for at most a third of the minutes, and runs study=ladder_gpu:
several runs at once on the GPU, all arms of a seed before those of the next. When the minutes are
over, or at Ctrl-C or SIGTERM, unfinished runs are stopped. Nothing needs a network, Docker or vLLM.

`out` gets study-ladder_gpu.tar.gz, the packed study of the seeds whose runs have all finished
(docs/guide/comparing.md), and steps.csv, the times of each step of every run. Both are written
whenever such a seed is complete, so a kill leaves the last ones. The same command resumes.
device=cpu rehearses it with tiny batches and the arms of the preset `rehearsal`.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from experiments.runner import Job
    from experiments.study import Study

ROOT = Path(__file__).resolve().parents[1]
STUDY = "ladder_gpu"
SIZE: Final = "25m"  # its base is trained here
BASE_SHARE = 1 / 3  # of the minutes, at most, for the base; in a rehearsal a quarter of it
PACKING_SHARE, PACKING_S = 0.2, 45.0  # the time kept for ending and packing: the smaller
TINY = (  # of a rehearsal
    *("steps=2", "train.prompts=2", "train.group_size=4", "eval.every=1", "eval.samples=4"),
    *("task.test_problems=4", "eval.further_temperatures=[]"),
)


@dataclass
class Options:
    """The command's own keys."""

    device: Literal["cuda", "cpu"] = "cuda"  # cpu: a rehearsal
    minutes: float = 9.0  # of everything, the base model and the packing included
    out: Path = Path("outputs/gpu-study")  # folder of what is to be carried away
    jobs: int | None = None  # parallel runs; null: the arms of one seed, at most one a core
    seeds: str | None = None  # only these of the study's seeds, with commas between them
    arms: str | None = None  # only these arms; null: all, in a rehearsal those of its preset


def packages() -> str:
    """A line on the packages of pyproject.toml that are missing, or not of the pinned version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    missing, other = list[str](), list[str]()
    for wanted in project["dependencies"]:
        name, pinned = re.fullmatch(r"([\w-]+)(?:==(.+)|.*)", wanted).groups()  # type: ignore[union-attr]
        try:
            if (found := importlib.metadata.version(name).partition("+")[0]) != (pinned or found):
                other.append(f"{name} {found} for {pinned}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(wanted)
    return f"missing: {', '.join(missing) or 'none'}; versions: {', '.join(other) or 'as pinned'}"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 1 if no seed is whole. Raises UserError."""
    began = time.monotonic()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    from experiments import nano, runner, study
    from experiments.policy.loading import pick_device
    from experiments.run_dir import interrupts
    from experiments.run_dir.records import STUDY_VARIABLE

    options, more = study.split_arguments(Options, arguments)
    on_gpu = options.device == "cuda"
    device = str(pick_device("cuda:0" if on_gpu else "cpu"))
    name = torch.cuda.get_device_name(0) if on_gpu else "a rehearsal on the CPU"
    print(f"{name}, {len(os.sched_getaffinity(0))} cores", flush=True)
    home = Path("outputs") / f"gpu-study-{options.device}"
    base = home / f"nano_{SIZE}"
    if not (base / "config.json").exists():
        share = BASE_SHARE if on_gpu else BASE_SHARE / 4
        nano.main(nano.Options(SIZE, base, 0, device, options.minutes * share))
    chosen = study.read(STUDY)
    for arm, each in chosen.arms.items():
        if arm.endswith(f"_{SIZE}"):
            each.overrides.append(f"model.path={base}")
    words = [f"output_dir={home}", f"model.device={device}", "engine=hf", "sandbox=embedded"]
    words += [*(() if on_gpu else TINY), *more]
    listed = options.arms or (None if on_gpu else ",".join(chosen.presets["rehearsal"]))
    arms = study.choose("arms", listed, list(chosen.arms))
    seeds = study.choose("seeds", options.seeds, chosen.seeds)
    jobs = study.study_jobs(chosen, seeds, arms, words)
    runner.check_runs([job.config for job in jobs[: len(arms)]])
    os.environ[STUDY_VARIABLE] = chosen.name

    def after(job: Job) -> list[Job]:
        if job.config.seed in whole_seeds(jobs):
            save(chosen, jobs, home / chosen.name, options.out)
        return []

    at_once = options.jobs or min(len(os.sched_getaffinity(0)), len(arms))
    running = runner.Runner(list(jobs), at_once, after=after)
    end = began + 60 * options.minutes - min(60 * options.minutes * PACKING_SHARE, PACKING_S)
    signal.signal(signal.SIGALRM, interrupts.interrupt)
    # Once to ask all runs to end, and every few seconds again to hurry and then to kill them.
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 0.1), 5)
    try:
        running.run()
    except KeyboardInterrupt:
        print(f"stopped after {time.monotonic() - began:.0f} s", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        interrupts.ignore_interrupts()
    runner.print_table(jobs)
    save(chosen, jobs, home / chosen.name, options.out)
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if whole_seeds(jobs) else 1


def whole_seeds(jobs: Sequence[Job]) -> list[int]:
    """The seeds of which every run has finished."""
    unfinished = {job.config.seed for job in jobs if job.end.status != "finished"}
    return sorted({job.config.seed for job in jobs} - unfinished)


def save(study: Study, jobs: Sequence[Job], folder: Path, out: Path) -> None:
    """Write the packed study and steps.csv into `out`; `folder` has the run folders.

    While no seed is whole, the packed study has what has finished of the first.
    """
    import pandas as pd

    from analysis.results import pack
    from analysis.runs import RunError, load_run
    from experiments.study import STUDIES, write_arms

    kept = whole_seeds(jobs) or [jobs[0].config.seed]
    cut = [job for job in jobs if job.config.seed not in kept]
    left = [replace(job, end=replace(job.end, status="cut")) for job in cut]
    taken = [job for job in jobs if job.config.seed in kept]
    write_arms(study, [*taken, *left], folder)
    out.mkdir(parents=True, exist_ok=True)
    packed = [job for job in taken if job.end.status == "finished"]
    if packed:
        with tempfile.TemporaryDirectory() as place:
            pack(folder, STUDIES / f"{STUDY}.yaml", Path(place) / study.name)
            made = shutil.make_archive(f"{place}/packed", "gztar", place, study.name)
            shutil.move(made, out / f"{study.name}.tar.gz")
    tables = []
    for job in jobs:
        try:
            steps = load_run(job.end.folder).metrics if job.end.folder else pd.DataFrame()
        except RunError:  # it was stopped before its first step
            continue
        spent = steps.filter(regex="^(step$|time/|memory/|budget/generated_tokens$)")
        arm, _, seed = job.label.rpartition("-s")
        tables.append(spent.assign(arm=arm, seed=int(seed), status=job.end.status))
    pd.concat(tables or [pd.DataFrame()]).to_csv(out / "steps.csv", index=False)
    seeds = ", ".join(map(str, kept))
    print(f"{out}: {len(packed)} of {len(taken)} runs of seed {seeds} packed", flush=True)


if __name__ == "__main__":
    print(packages(), flush=True)
    from experiments.study import command

    command(__doc__, Options, main)
