"""Many runs: find, resume or start each, one process a GPU, and the table at the end.

Sweeps (`run.py -m`), studies and tuning all come here. The state is the run folders alone: a
finished run of the same configuration is kept, a stopped one resumes, so the same command goes on
after any end. A job that fails does not stop the others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import BeforeValidator, PositiveInt

from envs.caching import cache_root
from envs.command_line import CONF, parse_arguments
from experiments.config.checks import parse, print_notes
from experiments.config.composition import config_of, is_finished, jobs_of
from experiments.config.preflight import check_before_start, resolve_defaults
from experiments.config.schema import RunConfig
from experiments.errors import FAILED, INTERRUPTED, End, UserError
from experiments.launch import check_launch, expected, run_alone, run_one, torchrun_ranks
from experiments.run_dir import interrupts
from experiments.run_dir.atomic_files import check_unlocked, lock
from experiments.run_dir.provenance import changes

Again = Literal["never", "always"]  # whether runs that were made before begin anew
ROOT = Path(__file__).resolve().parents[1]
WORKER_VARIABLE = "SPO_BENCH_WORKER"  # set for the processes of jobs that run at once
RESUMES = "interrupted; the same command resumes"
PAUSE_S = 0.3
NOT_RUN = End("not run")
VISIBLE = "CUDA_VISIBLE_DEVICES"
ANY_GPU = ("auto", "cuda")  # values of `model.device` that take any GPU
_claimed: list[int] = []  # this process's lock of a GPU, which ends with it
TAKES = {  # what a job takes from the run folder of another one → overrides
    "weights_of": ['model.path="{}/checkpoints/final"'],
    "rollouts_of": ['replay.from_runs=["{}"]', "replay.frozen=true"],
    "replay_of": ['replay.from_runs=["{}"]', "replay.own=false"],
}


@dataclass(eq=False)
class Job:
    """One run of several."""

    label: str  # unique among the jobs
    overrides: tuple[str, ...]  # as on run.py's command line
    config: RunConfig  # of these overrides
    parents: dict[str, Job] = field(default_factory=dict)  # key of TAKES → job that ends before
    replaced: Path | None = None  # its earlier run folder, which again=always leaves as it is
    end: End = NOT_RUN


@dataclass
class Runner:
    """Runs jobs, in their order, as they become ready."""

    jobs: list[Job]
    workers: int = 0  # processes at once, whose output goes to files; 0: jobs run in this process
    again: Again = "never"
    live: bool = False  # jobs show responses
    # called for each job that has ended; returns further jobs
    after: Callable[[Job], list[Job]] = lambda job: []

    def __post_init__(self) -> None:
        self.waiting = list(self.jobs)
        self.running: dict[Job, subprocess.Popen] = {}

    def run(self) -> None:
        """Run until no job is left. Raises KeyboardInterrupt once all have ended with a checkpoint.

        The first interrupt asks the running jobs to end, a second one hurries, a third one kills.
        """
        interrupts.raise_interrupts()
        try:
            while self.waiting or self.running:
                for job, process in list(self.running.items()):
                    if process.poll() is not None:
                        del self.running[job]
                        self._ended(job, _end_of_process(job, process))
                for job in list(self.waiting):
                    if len(self.running) >= max(self.workers, 1):
                        break
                    parents = job.parents.values()
                    if not any(p in self.waiting or p in self.running for p in parents):
                        self.waiting.remove(job)
                        self._begin(job)
                if self.workers:
                    time.sleep(PAUSE_S)
        except BaseException:
            if self.running:
                say(f"stopping {len(self.running)} runs, each with a checkpoint")
            _end_all(list(self.running.values()))
            for job in self.running:
                job.end = state(job.config)
            raise

    def _begin(self, job: Job) -> None:
        if failed := [p.label for p in job.parents.values() if p.end.status != "finished"]:
            return self._ended(job, End("not run", None, f"{', '.join(failed)} failed"))
        complete(job)
        found = state(job.config)
        if self.again == "always":
            job.replaced, found = found.folder, NOT_RUN
        if found.folder and is_locked(found.folder):  # e.g. by a process that is just ending
            say(f"{job.label} waits: another process has {found.folder}")
            while is_locked(found.folder):
                time.sleep(PAUSE_S)
            found = state(job.config)
        if found.kept:
            return self._ended(job, found)
        where = f"; output: {log_of(job)}" if self.workers else ""
        say(f"{job.label} {'resumes' if found.folder else 'starts'}{where}")
        if self.workers:
            self.running[job] = _start_process(job, self.workers, self.again)
            return None
        end = run_one(job.config, found.folder, in_sweep=not self.live)
        assert end is not None, "a sweep has no worker ranks"
        self._ended(job, end)
        if end.status == "interrupted":
            raise KeyboardInterrupt
        return None

    def _ended(self, job: Job, end: End) -> None:
        job.end = end
        more = self.after(job)
        self.jobs += more
        self.waiting += more
        done = len(self.jobs) - len(self.waiting) - len(self.running)
        how = end.error or str(end.folder)
        if end.kept and end.folder:
            kinds = ", ".join(changes(end.folder))  # code, packages, data, model
            made = f" (made with other {kinds}; again=always runs it again)" if kinds else ""
            how = f"kept: {end.folder}{made}"
        say(f"{job.label} {end.status}: {how}; {done} of {len(self.jobs)}")


def say(text: str) -> None:
    """Print a line with the time on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def default_workers() -> int:
    """Return how many processes a study runs at once: one a GPU, or without one a core."""
    return len(visible_gpus()) or len(os.sched_getaffinity(0))


Workers = Annotated[
    PositiveInt, BeforeValidator(lambda value: default_workers() if value == "auto" else value)
]


def find_run(config: RunConfig) -> Path | None:
    """Return the last run folder of this configuration, however its run ended; None without any.

    The words of `tuned`, which say how values were found, and the folder's spelling may differ.
    """
    files = list((Path(config.output_dir) / config.name).glob("*/config.yaml"))
    if not files:
        return None
    from experiments.policy.loading import pick_device

    resolved = resolve_defaults(config, str(pick_device(config.model.device)))
    wanted = _identity(OmegaConf.to_yaml(asdict(resolved)))
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        with suppress(OSError, ValueError, TypeError):  # a damaged folder is no run
            if _identity(file.read_text()) == wanted and _info(file.parent):
                return file.parent
    return None


def _identity(text: str) -> str:
    return re.sub(r"^(tuned:.*\n(?: .*\n)*|output_dir:.*\n)", "", text, flags=re.MULTILINE)


def _info(folder: Path) -> dict[str, Any]:
    """Return run.json. Raises OSError, ValueError or TypeError if it is missing or damaged."""
    return dict(json.loads((folder / "run.json").read_text()))


def state(config: RunConfig) -> End:
    """Return how the last run of exactly this configuration stands."""
    folder = find_run(config)
    if folder is None:
        return NOT_RUN
    info = _info(folder)
    pass_at = {int(k): score for k, score in info.get("pass_at", {}).items()}
    if is_finished(folder, config):
        return End("finished", folder, None, pass_at, kept=True)
    return End(info["status"], folder, info["error"], pass_at)


def complete(job: Job) -> None:
    """Add what a job takes from its parents, which have finished, to its configuration."""
    for key, parent in job.parents.items():
        job.overrides += tuple(line.format(parent.end.folder) for line in TAKES[key])
    if job.parents:
        job.config, job.parents = config_of(job.overrides), {}


def is_locked(folder: Path) -> bool:
    """Whether another process has a run folder."""
    try:
        check_unlocked(folder)
    except UserError:
        return True
    return False


# Processes.


def log_of(job: Job) -> Path:
    """Return the file of a job's output, where it has a process of its own."""
    name = job.label.replace("/", "_")[:120]
    return Path(job.config.output_dir) / job.config.name / "logs" / f"{name}.log"


def _start_process(job: Job, at_once: int, again: Again) -> subprocess.Popen:
    """Start a sweep of one job, in a session of its own, where a terminal's Ctrl-C is not heard."""
    (log := log_of(job)).parent.mkdir(parents=True, exist_ok=True)
    cores = max(1, len(os.sched_getaffinity(0)) // at_once)
    words = {word.partition("=")[0]: word for word in job.overrides}  # the last one of a key holds
    own = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "SPO_BENCH_CORES": str(cores)}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "run.py"), "-m", *words.values(), f"again={again}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=os.environ | own | {WORKER_VARIABLE: "1"},
            start_new_session=True,
            preexec_fn=interrupts.terminate_with_parent,
        )


def visible_gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    listed = os.environ.get(VISIBLE)
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    try:
        import pynvml

        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # not installed, or no driver
        return []


def claim_gpu(waits: Callable[[], None]) -> str | None:
    """Give this process one GPU until it ends; wait while other processes hold all of them.

    A process sees the GPUs that CUDA_VISIBLE_DEVICES names, so a run whose variable names a single
    one puts learner and engine there. The variable counts only until torch is imported. Locks are
    folders of this machine. A GPU that the variable names twice takes two runs. `waits` is called
    once if the process has to wait. Returns the GPU's name; None without any.
    """
    gpus, said = visible_gpus(), False
    while gpus and not _claimed:
        for position, name in enumerate(gpus):
            share = f"{name.replace('/', '-')}-{gpus[:position].count(name)}"
            folder = cache_root() / "gpus" / socket.gethostname() / share
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(UserError):  # another process has it
                _claimed.append(lock(folder))
                os.environ[VISIBLE] = name
                return name
        if not said:
            waits()
        said = True
        time.sleep(PAUSE_S)
    return gpus[0] if gpus else None


def _end_of_process(job: Job, process: subprocess.Popen) -> End:
    """Return how a job ended whose process has ended."""
    end = state(job.config)
    if end.folder == job.replaced:
        end = End("failed")  # before there was a new folder
    if end.kept:
        return End("finished", end.folder, None, end.pass_at)
    error = end.error
    if process.returncode < 0:
        error = f"ended by {signal.Signals(-process.returncode).name}"
    elif error is None:
        lines = [line.strip() for line in log_of(job).read_text(errors="replace").splitlines()]
        errors = [line for line in lines if line.startswith(("error: ", "failed: "))]
        error = (errors or lines or ["no output"])[-1].removeprefix("error: ")
    return End("failed", end.folder, error, end.pass_at)


def _end_all(processes: Sequence[subprocess.Popen]) -> None:
    """Ask all processes to end with a checkpoint, and wait; each further Ctrl-C asks harder."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
        try:
            for process in processes:
                process.wait()
            return
        except KeyboardInterrupt:
            continue


def check_runs(configs: Sequence[RunConfig]) -> None:
    """Raise UserError for what would end one of these runs at its start."""
    for config in configs:
        check_launch(config)
    check_before_start(configs)
    print_notes(configs)


# The table at the end.


def print_table(jobs: Sequence[Job]) -> int:
    """Print a row for each job and a line for each failure; return the number of failures.

    On a terminal that is too narrow for the run folders, they follow the table.
    """
    from rich.console import Console
    from rich.table import Table

    pass_at = [job.end.pass_at if job.end.status == "finished" else {} for job in jobs]
    ks = sorted({k for scores in pass_at for k in scores})
    table = Table("job", "status", *(f"pass@{k}" for k in ks), "run folder")
    for job, scores in zip(jobs, pass_at, strict=True):
        cells = [f"{scores[k]:.3f}" if k in scores else "–" for k in ks]
        status = f"{job.end.status}{' before' if job.end.kept else ''}"
        table.add_row(job.label, status, *cells, str(job.end.folder or "–"))
    console = Console(highlight=False)
    wide = console.options.update_width(1000)
    folders: list[str] = []
    if not console.is_terminal:
        console.width = wide.max_width  # one row a line in files and pipes
    elif table.__rich_measure__(console, wide).maximum > console.width:
        table.columns.pop()
        folders = [f"{job.label}: {job.end.folder}" for job in jobs if job.end.folder]
    console.print(table)
    print(*folders, sep="\n", end="\n" * bool(folders))
    failures = [job for job in jobs if job.end.status == "failed" or job.end.error]
    for job in failures:
        print(f"{job.end.status}: {job.label}: {job.end.error}")
    return len(failures)


def print_plan(jobs: Sequence[Job], at_once: int, again: Again) -> None:
    """Print how jobs stand, and the time and disk of those that would run."""
    from analysis.rendering import duration

    for job in jobs:
        if all(parent.end.kept for parent in job.parents.values()):
            complete(job)
            job.end = state(job.config)
    print_table(jobs)
    due = [job.config for job in jobs if again == "always" or not job.end.kept]
    known = [cost for cost in expected(due) if cost]
    print(f"{len(due)} of {len(jobs)} jobs would run, {at_once} at once")
    folder = jobs[0].config.output_dir
    if known:
        times, sizes = zip(*known, strict=True)
        time_s = max(sum(times) / at_once, *times)
        free = shutil.disk_usage(folder).free / 1e6
        taken = f"{duration(time_s)} and {sum(sizes):,.0f} MB; {free:,.0f} MB are free"
        print(f"{len(known)} of them, by earlier runs: about {taken}")
    if unknown := len(due) - len(known):
        print(
            f"{unknown} of them: time and disk are not known, as no finished run in {folder} has "
            "their task, model and engine; a run with steps=2 measures them"
        )


# Sweeps.


@dataclass
class SweepOptions:
    """The keys of a sweep itself."""

    # processes at once; by default one for each GPU if there are several, else jobs run here
    jobs: Workers | None = None
    again: Again = "never"  # always: begin all runs anew, also those that have finished
    plan: bool = False  # print the jobs, how they stand, and their time and disk, then exit


def run_sweep(arguments: Sequence[str]) -> int:
    """Run every combination of a command line with -m; returns the exit status.

    Raises UserError, before the first run, if any job is invalid.
    """
    keys = [each.name for each in fields(SweepOptions)]
    own = [word for word in arguments if word.partition("=")[0] in keys]
    words = [word for word in arguments if word not in own and not word.startswith("hydra")]
    slurm = len(words) + len(own) < len(arguments)
    try:
        options = parse_arguments(SweepOptions, own)
    except ValueError as error:
        raise UserError(str(error)) from None
    if torchrun_ranks():
        raise UserError("torchrun with -m: start the jobs one by one, each with torchrun")
    overrides = jobs_of(words)
    configs = [config_of(job) for job in overrides]
    jobs, shared = [], set.intersection(*map(set, overrides))
    for number, (each, config) in enumerate(zip(overrides, configs, strict=True), 1):
        digits = f"{number:0{len(str(len(overrides)))}}"  # then what not all jobs share
        label = " ".join([digits, *(word for word in each if word not in shared)])
        jobs.append(Job(label, tuple(each), config))
    check_runs(configs)
    several = len(visible_gpus()) > 1 and configs[0].model.device in ANY_GPU
    workers = options.jobs or (len(visible_gpus()) if several else 0)
    if options.plan:
        print_plan(jobs, max(workers, 1), options.again)
        return 0
    interrupted = False
    try:
        if slurm:
            interrupts.exit_on_interrupt("interrupted; submitted jobs go on; scancel ends one")
            submit([word for word in arguments if word not in own])
            for job in jobs:
                job.end = replace(state(job.config), kept=False)
        else:
            if os.environ.pop(WORKER_VARIABLE, None):  # the process of one of several jobs at once
                workers = 0
                any_gpu = configs[0].model.device in ANY_GPU
                if any_gpu and (gpu := claim_gpu(waits=lambda: say("waiting for a GPU"))):
                    say(f"on GPU {gpu}")
            Runner(jobs, workers, options.again).run()
    except KeyboardInterrupt:
        interrupted = True
    failures = print_table(jobs)
    if folders := dict.fromkeys(str(job.end.folder.parent) for job in jobs if job.end.folder):
        print(f"report: make report RUNS={','.join(folders)}")
    if interrupted:
        print(RESUMES)
    return INTERRUPTED if interrupted else FAILED if failures else 0


# Slurm.


def submit(arguments: Sequence[str]) -> None:
    """Run a sweep with Hydra's launcher, which submits each job to Slurm; return when all ended.

    Raises UserError if there is no such launcher.
    """
    import hydra
    from hydra.errors import HydraException

    sys.argv[1:] = arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come here
    try:
        hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(_submitted)()
    except HydraException as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{reason}; `pip install -e '.[launch]'` installs submitit") from error


def _submitted(composed: DictConfig) -> None:
    """Run, resume or keep one job, in the process that submitit starts it in."""
    config = parse(composed)
    found = state(config)
    if not found.kept:
        with _ending_with_a_checkpoint():
            run_alone(config, found.folder)


@contextmanager
def _ending_with_a_checkpoint() -> Iterator[None]:
    """Interrupt the run at the signals of submitit: scancel's, and the one before a time limit.

    Afterwards submitit's own handler has its turn, which requeues a job that was preempted.
    """
    caught: list[int] = []
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    handlers = {n: handler for n in numbers if callable(handler := signal.getsignal(n))}

    def warned(number: int, _: object) -> None:
        caught.append(number)
        interrupts.interrupt()

    for number in handlers:
        signal.signal(number, warned)
    interrupts.raise_interrupts()
    with suppress(KeyboardInterrupt):  # before the run had anything to save
        yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for first in caught[:1]:
        with suppress(Exception):  # of a time limit it raises an error, which is none of the run
            handlers[signal.Signals(first)](first, None)
