"""Runs a study's jobs in parallel processes, in order, as they become ready.

Each process is a Hydra sweep of one job (`python run.py -m`), so a finished run is left alone and a
stopped one resumes. The runner adds what a sweep lacks: jobs that wait for others. Its state is
the run folders alone, so the same command resumes after any end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from experiments.config.command_line import Again
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.gpus import GPU_CHOICES, all_gpus_held
from experiments.run_dir.atomic_files import lock
from experiments.run_dir.interrupts import terminate_with_parent
from experiments.run_dir.records import STUDY_VARIABLE
from experiments.studies.estimate import TIMED_S, TIMED_STEPS, Clock, format_duration, whole_time
from experiments.studies.jobs import (
    End,
    Job,
    config_with_seed,
    end_of,
    full_overrides,
    is_lost,
    is_ready,
)
from experiments.sweep import begins_anew
from experiments.sweep_jobs import LIVE_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
PAUSE_S = 0.3
# of a timing run; the first and last step do more than others
FEW = (
    *(f"steps={TIMED_STEPS}", "eval.every=0", "train.checkpoint_every=0", "eval.kl_samples=0"),
    *("eval.samples=1", "eval.k=[1]", "eval.further_temperatures=[]"),
)


class Runner:
    """The jobs of a study: ended, running, and waiting."""

    def __init__(
        self,
        jobs: Sequence[Job],
        workers: int,
        say: Callable[[str], None],
        after: Callable[[Job, End], None] = lambda job, end: None,
        again: Again = "never",
        live: bool = False,
    ) -> None:
        """`after` is called for each job that ends while this runs; it may add jobs.

        `progress` is said of the job after that. `again`: which runs that were made before begin
        anew. `live`: runs write on the screen, not into files.
        """
        self.jobs, self.workers, self.say, self.after = list(jobs), workers, say, after
        self.again, self.live = again, live
        self.found: list[tuple[Path, RunConfig]] = []  # runs that were made before
        self.replaced: dict[Job, Path] = {}  # of those: that begin anew
        self.progress: Callable[[Job], str] = self._progress
        self.ended: dict[Job, End] = {}
        self.states: dict[Job, End] = {}  # last known states of the others
        self.running: dict[Job, subprocess.Popen] = {}
        self.clock = Clock()

    def look(self) -> None:
        """Find the runs that have finished before, and how long they took."""
        for job in self.jobs:
            if not is_ready(job, self.ended) or is_lost(job, self.ended):
                continue
            state = self._state(job)
            if state.status == "finished":
                self._finished(job, state)
            else:
                self.states[job] = state

    def _state(self, job: Job) -> End:
        """The state of the job's last run, unless it is to be made again."""
        config = self.config(job)
        state = end_of(config)
        if state.folder is None:
            return state
        self.found.append((state.folder, config))
        if begins_anew(state.folder, config, self.again):
            self.replaced[job] = state.folder
            return End("not begun")
        return state

    def overrides(self, job: Job) -> tuple[str, ...]:
        """The overrides of the job's command without its seed, as far as they are known."""
        complete = is_ready(job, self.ended) and not is_lost(job, self.ended)
        return full_overrides(job, self.ended) if complete else job.overrides

    def config(self, job: Job) -> RunConfig:
        """The job's configuration, as far as it is known."""
        return config_with_seed(self.overrides(job), job.seed)

    def left(self) -> list[Job]:
        """The jobs that have not ended."""
        return [job for job in self.jobs if job not in self.ended]

    def seconds_left(self) -> float:
        """Estimated time until all have ended. Running jobs count as half done."""
        seconds = {
            job: self.clock.seconds(job, self.config(job), self.states.get(job, End("not begun")))
            for job in self.left()
        }
        seconds |= {job: seconds[job] / 2 for job in self.running}
        return whole_time(seconds, self.workers)

    def run(self) -> None:
        """Run until no job is left. An interrupt ends the running ones, each with a checkpoint."""
        try:
            while self.left():
                self._reap()
                self._fill()
                time.sleep(PAUSE_S)
        except KeyboardInterrupt:
            self.say(
                f"stopping {len(self.running)} runs, each with a checkpoint; Ctrl-C again hurries"
            )
            end_processes(list(self.running.values()))
            raise
        except BaseException:
            end_processes(list(self.running.values()))
            raise

    def _fill(self) -> None:
        for job in self.jobs:
            if len(self.running) == self.workers:
                return
            if job in self.ended or job in self.running or not is_ready(job, self.ended):
                continue
            if is_lost(job, self.ended):
                needed = ", ".join(needed.label for needed in job.needs)
                self.ended[job] = End("not run", None, f"{needed} failed")
                self.say(f"{job.label} not run: {self.ended[job].error}")
            elif not self._is_locked(job):
                again = () if self.again == "never" else (f"again={self.again}",)
                command = [*self.overrides(job), f"seed={job.seed}", *again]
                if job not in self.states:  # it was not ready before
                    self._state(job)
                name = self.config(job).name
                log = None if self.live else self.log(job)
                waits = all_gpus_held() and self.config(job).model.device in GPU_CHOICES
                self.say(f"{job.label} {'waits for a GPU: all are held' if waits else 'starts'}")
                self.running[job] = start_process(command, log, name)

    def _is_locked(self, job: Job) -> bool:
        """Whether another process has the run folder, e.g. one that is just ending."""
        folder = end_of(self.config(job)).folder
        if folder is None or folder == self.replaced.get(job):
            return False
        try:
            os.close(lock(folder))
        except UserError:
            if self.states.get(job, End("")).status != "locked":
                self.say(f"{job.label} waits: {folder} still belongs to another process")
                self.states[job] = End("locked", folder)
            return True
        return False

    def log(self, job: Job) -> Path:
        """The output file of the job's processes."""
        config = self.config(job)
        return Path(config.output_dir) / config.name / "logs" / f"{job.label}.log"

    def _reap(self) -> None:
        for job, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[job]
            end = end_of(self.config(job))
            if end.folder and end.folder == self.replaced.get(job):
                end = End("failed")  # before there was a new folder
            if end.status == "finished":
                self._finished(job, end)
                outcome = "done"
            else:
                error = end.error or _error_of(process, None if self.live else self.log(job))
                self.ended[job] = End("failed", end.folder, error)
                outcome = f"failed: {error}"
            self.after(job, self.ended[job])
            self.say(f"{job.label} {outcome}; {self.progress(job)}")

    def _progress(self, _: Job) -> str:
        # without a finished run nothing is known of the time
        timed = self.clock.steps and self.left()
        left = f"; {format_duration(self.seconds_left())} left" if timed else ""
        return f"{len(self.ended)} of {len(self.jobs)}{left}"

    def _finished(self, job: Job, end: End) -> None:
        assert end.folder is not None
        self.ended[job] = end
        self.clock.learn(job.arm, end.folder, self.config(job))


def time_few_steps(
    jobs: Mapping[Job, tuple[Sequence[str], RunConfig]],
    workers: int,
    clock: Clock,
    say: Callable[[str], None],
) -> list[Job]:
    """Time a few steps of each job, in parallel runs that are deleted afterwards.

    Ends after TIMED_S seconds. Returns the jobs that were timed by then; none, if the first is not
    among them: it evaluates between its steps too, once with one sample a problem, and its time is
    multiplied by the study's samples. Raises UserError if a run fails.
    """
    waiting, running = list(jobs), dict[Job, subprocess.Popen]()
    first, timed, end = waiting[0], list[Job](), time.monotonic() + TIMED_S
    folders = {
        job: Path(config.output_dir) / f"{config.name}-timing-{job.arm}"
        for job, (_, config) in jobs.items()
    }
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                number = len(jobs) - len(waiting)
                say(f"timing {TIMED_STEPS} steps of {job.arm}, {number} of {len(jobs)} …")
                command = [*jobs[job][0], f"seed={job.seed}", *FEW]
                # the base's evaluation starts the engine and judges slow programs: time another
                command += ["eval.every=2"] if job is first else []
                running[job] = _start_timing(command, folders[job])
            for job in [job for job, process in running.items() if process.poll() is not None]:
                if running.pop(job).returncode:
                    raise UserError(f"{job.label}: {last_error(folders[job] / 'log')}")
                step, evaluation = _times(next(folders[job].glob("*/metrics.parquet")))
                clock.steps[job.arm] = [step]
                timed.append(job)
                if job is first:
                    clock.evaluations.append(evaluation * jobs[job][1].eval.samples)
            time.sleep(0.1)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    return timed if first in timed else []


def _start_timing(overrides: Sequence[str], folder: Path) -> subprocess.Popen:
    """Start a run that is only timed, in a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    return start_process([*overrides, f"name={folder.name}"], folder / "log", folder.name)


def _times(file: Path) -> tuple[float, float]:
    """Seconds of a step, without the first and last, and of the evaluation during training."""
    import pandas as pd

    rows = pd.read_parquet(file)
    evaluated = rows["time/evaluate_s"]
    without = rows["time/total_s"] - evaluated
    step = (without.iloc[-2] - without.iloc[0]) / (len(rows) - 2)
    return float(step), float(evaluated.iloc[-1] - evaluated.iloc[0])


def start_process(overrides: Sequence[str], log: Path | None, study: str) -> subprocess.Popen:
    """Start one run of a study on one core's threads. It ends with its parent, with a checkpoint.

    `log`: where its output is appended; None: it goes where this process's goes. It takes a free
    GPU itself (`sweep_jobs.takes_gpu`). It has a session of its own, so that Ctrl-C reaches it only
    through its parent.
    """
    with ExitStack() as stack:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        out = None if log is None else stack.enter_context(log.open("ab"))
        return subprocess.Popen(
            [sys.executable, str(ROOT / "run.py"), "-m", *overrides],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out and subprocess.STDOUT,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", STUDY_VARIABLE: study}
            | ({LIVE_VARIABLE: "1"} if log is None else {}),
            start_new_session=True,
            preexec_fn=terminate_with_parent,
        )


def end_processes(running: Sequence[subprocess.Popen]) -> None:
    """Ask all runs to end with a checkpoint, and wait.

    A second Ctrl-C asks again, a third one kills.
    """
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for process in running:
            if process.poll() is None:
                process.send_signal(number)
        try:
            while any(process.poll() is None for process in running):
                time.sleep(0.1)
            return
        except KeyboardInterrupt:
            continue


def _error_of(process: subprocess.Popen, log: Path | None) -> str:
    """The reason why a run failed, for a run folder that does not record it."""
    if process.returncode < 0:
        return f"ended by {signal.Signals(-process.returncode).name}"
    return last_error(log) if log else "its last lines are above"


def last_error(log: Path) -> str:
    """The log line that says why a run failed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line for line in lines if line.startswith(("error: ", "failed: "))]
    return (errors or lines or ["no output"])[-1].removeprefix("error: ")
