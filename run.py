"""Entry point: compose the configuration, check it, run it. `python run.py --help` shows the usage.

All jobs of a command are composed and checked before the first one starts, so a typo cannot end a
sweep half way. A job that fails later does not stop the others.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from experiments.run_dir.interrupts import exit_on_interrupt

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from experiments.config.schema import RunConfig
    from experiments.trainer import Outcome

HYDRA_SHOWS = ("--hydra-help", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion")
JOBS_VARIABLE = "SPO_BENCH_JOBS"  # number of jobs of the sweep
FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # exit statuses
NOT_BEGUN = "interrupted before the run began; the same command begins it"


def main() -> None:
    exit_on_interrupt()  # before the imports that take a while
    gc.disable()  # until the imports are done, which leave next to nothing to collect
    from envs.command_line.command_help import quiet_when_unread
    from experiments.config.command_line import note_command_line, spelt_out
    from experiments.errors import UserError

    note_command_line(sys.argv)
    typed = sys.argv[1:]
    try:
        sys.argv[1:] = spelt_out(typed)
    except UserError as error:
        fail(str(error))
    with quiet_when_unread():
        act(sys.argv[1:], typed)


def act(arguments: list[str], typed: list[str]) -> None:
    """Show what the command line asks to see, or run what it asks to run."""
    if show(arguments):
        return None
    if any(argument.startswith("resume=") for argument in arguments):
        return resume(arguments)
    import hydra

    from experiments.config.class_defaults import register
    from experiments.config.composition import CONF, is_sweep
    from experiments.config.from_run import origin_line, recorded_folder
    from experiments.launch import is_rank_zero
    from experiments.sweep import other_code_line
    from experiments.sweep_jobs import RESUMES, interrupted_line

    register()
    run = hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(start)
    of_sweep = is_sweep(arguments)
    if flags := [flag for a in arguments if (flag := a.partition("=")[0]) in HYDRA_SHOWS]:
        if of_sweep and "--hydra-help" not in flags:
            fail(f"{flags[0]} with -m: it shows one configuration; leave out -m")
        return print_all(run)
    if is_rank_zero():
        exit_on_interrupt(RESUMES if of_sweep else NOT_BEGUN)
    jobs, configs = check(arguments)
    if (folder := recorded_folder(typed)) and is_rank_zero():
        origin = [origin_line(arguments, typed), other_code_line(folder, configs[0])]
        print(*filter(None, origin), sep="\n", file=sys.stderr)
    try:
        sweep(run, jobs, configs) if of_sweep else run()
    except KeyboardInterrupt:
        if is_rank_zero():
            print(interrupted_line(arguments) if of_sweep else NOT_BEGUN)
        raise SystemExit(INTERRUPTED) from None


def show(arguments: list[str]) -> bool:
    """Print the version, the help or the configuration if it is asked for; return whether."""
    if "--version" in arguments:
        from experiments.config.version import version_text

        print(version_text())
        return True
    from experiments.config.show import shown_text
    from experiments.errors import UserError

    try:
        text = shown_text(arguments)
    except UserError as error:
        fail(str(error))
    if text is not None:
        print(text)
    return text is not None


def print_all(run: Callable[[], None]) -> None:
    """Print at once what Hydra prints, since it answers a reader that has gone by a traceback."""
    from contextlib import redirect_stdout
    from io import StringIO

    text = StringIO()
    try:
        with redirect_stdout(text):
            run()
    finally:
        print(text.getvalue(), end="")


def resume(arguments: list[str]) -> None:
    """Resume the run in resume=FOLDER, with overrides of keys that may change."""
    from experiments.config.preflight import check_before_start
    from experiments.config.resume import (
        is_finished,
        named_folder,
        recorded_values,
        resumed_config,
    )
    from experiments.errors import UserError
    from experiments.launch import is_rank_zero
    from experiments.run_dir.atomic_files import check_unlocked
    from experiments.sweep import mixed_code_line
    from experiments.sweep_jobs import RESUMES

    folders = [argument for argument in arguments if argument.startswith("resume=")]
    try:
        folder = named_folder(folders[-1])
        config = resumed_config(folder, [a for a in arguments if a not in folders])
        finished = is_finished(folder, config)
        if not finished:
            check_unlocked(folder)
            check_before_start([config])
    except UserError as error:
        fail(str(error))
    if finished:
        if is_rank_zero():
            done = recorded_values(folder, folders[-1])["steps"]
            print(f"already finished, {done} steps; steps=N extends it\nrun folder: {folder}")
        return
    announce(config)
    if is_rank_zero():
        if line := mixed_code_line(folder, config):
            print(f"WARNING: {line}", file=sys.stderr)
        exit_on_interrupt(RESUMES)
    try:
        finish(run_one(config, folder))
    except KeyboardInterrupt:
        if is_rank_zero():
            print(RESUMES)
        raise SystemExit(INTERRUPTED) from None


def announce(config: RunConfig) -> None:
    """Say what begins; the imports that follow take seconds."""
    from experiments.launch import is_rank_zero

    if is_rank_zero():
        chosen = f"algo={config.algo.name} task={config.task.name} model={config.model.name}"
        print(f"{chosen} seed={config.seed} steps={config.steps}: loading", file=sys.stderr)


def sweep(run: Callable[[], None], jobs: list[list[str]], configs: list[RunConfig]) -> None:
    """Run all jobs, one after the other or several at once; always print a table at the end."""
    from experiments.config.command_line import requested_again
    from experiments.config.composition import counted
    from experiments.errors import UserError
    from experiments.sweep import (
        changes_line,
        find_run,
        has_folders,
        later_runs_line,
        new_folder,
        print_summary,
    )
    from experiments.sweep_jobs import handling_interrupts, parallel_launcher

    if any(map(has_folders, configs)):
        print("looking for earlier runs of these jobs …", file=sys.stderr)
    jobs_found = counted(configs, "looking for earlier runs")
    runs = [(found, config) for config in jobs_found if (found := find_run(config))]
    again = requested_again()
    later = later_runs_line(runs) if again != "always" else None
    for line in filter(None, [changes_line(runs, again), later]):
        print(line, file=sys.stderr)
    folder = new_folder(configs[0].output_dir)
    os.environ[JOBS_VARIABLE] = str(len(jobs))  # for the processes that run them
    sys.argv.append(f'hydra.sweep.dir="{folder}"')
    broken = ""
    try:
        with handling_interrupts(folder, parallel_launcher(sys.argv)):
            run()
    except UserError as error:
        broken = str(error)
    finally:
        failed = print_summary(folder, jobs, bool(later))
    if broken:
        fail(broken, FAILED)
    if failed:
        raise SystemExit(FAILED)


def check(arguments: list[str]) -> tuple[list[list[str]], list[RunConfig]]:
    """Compose and check every job; return their overrides and their configurations.

    Ends the process with one line at the first fault.
    """
    from experiments.config.composition import config_of, counted, is_sweep, jobs_of
    from experiments.config.preflight import check_before_start, make_output_folder
    from experiments.config.resolve_defaults import setting_warnings
    from experiments.errors import UserError
    from experiments.launch import check_launch, is_rank_zero, torchrun_ranks
    from experiments.policy.length_check import length_warning
    from experiments.sweep_jobs import check_launcher, crowded_sweep

    try:
        jobs = jobs_of(arguments)
        configs = [config_of(job) for job in counted(jobs, "checking jobs")]
        for config in configs:
            check_launch(config)
        ranked = torchrun_ranks() > 1 or any(c.runtime.name == "torchrun" for c in configs)
        if ranked and is_sweep(arguments):
            raise UserError("torchrun with -m: start the jobs one by one, each with torchrun")
        check_launcher(arguments)
        for folder in {config.output_dir for config in configs}:
            make_output_folder(folder)
        hints = check_before_start(configs)
    except UserError as error:
        fail(str(error), MISUSED)
    warnings = dict.fromkeys(
        line for config in configs for line in (*setting_warnings(config), length_warning(config))
    )
    crowded = crowded_sweep(arguments, [config.model.device for config in configs])
    for line in hints if is_rank_zero() else ():
        print(f"NOTE: {line}", file=sys.stderr)
    for line in filter(None, [*warnings, crowded]) if is_rank_zero() else ():
        print(f"WARNING: {line}", file=sys.stderr)
    return jobs, configs


def fail(message: str, status: int = MISUSED) -> NoReturn:
    from experiments.launch import is_rank_zero

    if is_rank_zero():
        print(f"error: {message}", file=sys.stderr)
    raise SystemExit(status)


def start(composed: DictConfig) -> None:
    """Run one job, in the process that Hydra starts it in."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from experiments.config.schema import parse

    job, config = HydraConfig.get(), parse(composed)
    if job.mode == RunMode.MULTIRUN:
        return job_of_sweep(config, job)
    announce(config)
    return finish(run_one(config))


def job_of_sweep(config: RunConfig, job: DictConfig) -> None:
    """Run one job of a sweep, in the sweep's process or in one of its own; `job`: Hydra's part.

    Raises KeyboardInterrupt if a run in the sweep's process was interrupted.
    """
    from experiments.sweep_jobs import (
        claimed_gpu,
        runs_in_sweep_process,
        submitted_job,
        takes_gpu,
        worker_process,
    )

    folder, number = Path(job.sweep.dir), job.job.num
    name = f"job {number + 1}/{os.environ.get(JOBS_VARIABLE, '?')}"
    # joblib's alone
    at_once = job.launcher.n_jobs if "n_jobs" in job.launcher else None

    def begin() -> None:
        gpu = claimed_gpu(config.model.device, name) if takes_gpu(at_once is not None) else ""
        print(f"{name}{gpu}: {' '.join(job.overrides.task)}", file=sys.stderr)

    if runs_in_sweep_process():
        begin()
        if one_of_sweep(config, folder, number).status == "interrupted":
            raise KeyboardInterrupt
    elif at_once is None:
        with submitted_job():
            begin()
            one_of_sweep(config, folder, number)
    else:
        with worker_process(folder, number, at_once) as is_to_run:
            if is_to_run:
                begin()
                one_of_sweep(config, folder, number, f"{name}: ")


def one_of_sweep(config: RunConfig, sweep: Path, number: int, label: str = "") -> Outcome:
    """Run, resume or skip a job of a sweep, and record its outcome in `sweep`."""
    from experiments.config.command_line import requested_again
    from experiments.config.resume import is_finished
    from experiments.sweep import (
        begins_anew,
        find_run,
        finished_outcome,
        kinds_changed,
        provenance,
        record_outcome,
        time_left,
    )
    from experiments.sweep_jobs import shows_responses

    folder = find_run(config)
    if folder and begins_anew(folder, config, requested_again()):
        folder = None
    changed = kinds_changed(folder, config) if folder else ""
    kept = bool(folder and is_finished(folder, config))
    if folder and kept:
        print(f"{label}not run again: {provenance(folder, changed)}", file=sys.stderr)
        outcome: Outcome | None = finished_outcome(folder)
    else:
        outcome = run_one(config, folder, label, in_sweep=not shows_responses())
    assert outcome is not None, "a sweep has no worker ranks"
    record_outcome(sweep, number, outcome, kept, changed)
    left = time_left(sweep, int(os.environ.get(JOBS_VARIABLE, "0")))
    print(f"{label}{outcome.status}: {outcome.error or outcome.folder}{left}", file=sys.stderr)
    return outcome


def run_one(
    config: RunConfig, folder: Path | None = None, label: str = "", in_sweep: bool = False
) -> Outcome | None:
    """Train, or resume in `folder`. A failure before there is a run folder is an outcome too."""
    import traceback

    from experiments.errors import is_expected, one_line
    from experiments.launch import train
    from experiments.trainer import Outcome

    if not gc.isenabled():  # the imports are done; freeze them, or each generation scans them
        gc.freeze()
        gc.enable()
    try:
        return train(config, folder, label, in_sweep)
    except Exception as error:
        if not is_expected(error):
            traceback.print_exc()
        return Outcome(None, "failed", one_line(error), is_expected(error))


def finish(outcome: Outcome | None) -> None:
    """Print how a single run ended, and exit with its status; None: another rank does that."""
    if outcome is None:
        return
    if outcome.status == "interrupted":
        print(f"interrupted; resume with: python run.py resume={outcome.folder}")
        print(f"run folder: {outcome.folder}")
        raise SystemExit(INTERRUPTED)
    if outcome.status == "failed":
        fail(outcome.error or "", MISUSED if outcome.expected else FAILED)
    assert outcome.folder is not None, "a finished run has a folder"
    from rich.console import Console

    from analysis.rendering import before_after_table

    Console().print(before_after_table(outcome.folder))
    print(f"run folder: {outcome.folder}")


if __name__ == "__main__":
    main()
