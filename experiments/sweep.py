"""Sweeps (`run.py -m`): find the run of a configuration, record how jobs end, print their table.

Each job's end is written to a folder of the sweep, because Hydra's launchers may run jobs in other
processes. The same command again finds the runs that it made before, by their configuration, and
does what is left. It says what has changed since of their code, data, model and packages;
`again=changed` begins those runs anew, `again=always` all.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from experiments.config.command_line import Again
from experiments.run_dir.activity import duration
from experiments.run_dir.atomic_files import atomic_write

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.trainer import Outcome

STAMP, STAMP_CHARS = "%Y%m%d-%H%M%S", 15  # at the beginning of a sweep folder's name
KINDS = {  # of what changed, in words
    "code": "other code",
    "data": "other data",
    "model": "another model",
    "packages": "other packages",
    "unrecorded": "code that was not recorded",
}
NAMED = 4  # files that a line names
COMPARE, REPORT = "make compare", "make report"
LATER_RUNS = (
    "later runs with the same settings are not of this code, data, model or packages, but a "
    "report of their folder takes them"
)


def new_folder(output_dir: str) -> Path:
    """Return the path of a new sweep's folder."""
    stamp = time.strftime(STAMP)
    return Path(output_dir).absolute() / ".sweeps" / f"{stamp}-{os.getpid()}"


def find_run(config: RunConfig) -> Path | None:
    """Return the run folder of this configuration, however its run ended; None without any.

    Of several it is the last whose code, data, model and packages are those of now, so that an edit
    that was taken back finds the runs of before it. If all have changed it is the last of them.
    """
    from experiments.run_dir.provenance import changes

    folders = _runs_of(config)
    unchanged = (at for at in folders if len(folders) == 1 or not changes(at, config))
    return next(unchanged, folders[0] if folders else None)


def _runs_of(config: RunConfig) -> list[Path]:
    """Return the run folders of this configuration, the last first.

    The words of `tuned`, which say how values were found, may differ.
    """
    if not has_folders(config):
        return []
    from experiments.config.resolve_defaults import resolve_defaults
    from experiments.policy.loading import pick_device

    resolved = resolve_defaults(config, str(pick_device(config.model.device)))
    text = _without_tuned(OmegaConf.to_yaml(asdict(resolved)))
    files = [
        file
        for file in _config_files(config)
        if _without_tuned(file.read_text()) == text and _has_record(file.parent)
    ]
    files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.parent for file in files]


def has_folders(config: RunConfig) -> bool:
    """Return whether there are run folders of this `name`, which takes no time."""
    return any(True for _ in _config_files(config))


def _config_files(config: RunConfig) -> Iterator[Path]:
    return (Path(config.output_dir) / config.name).glob("*/config.yaml")


def _has_record(folder: Path) -> bool:
    """Return whether a run folder has a run.json that can be read."""
    try:
        return isinstance(json.loads((folder / "run.json").read_text()), dict)
    except (OSError, ValueError):
        return False


def later_runs_line(runs: Iterable[tuple[Path, RunConfig]]) -> str | None:
    """Return a line on runs that are later than those that a sweep takes; None: there are none.

    `runs`: the folders that it takes, and their configurations. A report takes the later runs.
    """
    later = list[str]()
    for folder, config in runs:
        found = _runs_of(config)
        later += [str(at) for at in found[: found.index(folder)]]
    if not later:
        return None
    return f"{LATER_RUNS} until they are moved away: {_listed(later)}"


def _without_tuned(text: str) -> str:
    """Return a configuration's YAML without its key `tuned`, which may have several lines."""
    return re.sub(r"^tuned:.*\n(?: .*\n)*", "", text, flags=re.MULTILINE)


def finished_outcome(folder: Path) -> Outcome:
    """Return the outcome of a run that finished in an earlier sweep."""
    from experiments.trainer import Outcome

    scores = json.loads((folder / "run.json").read_text()).get("pass_at", {})
    return Outcome(folder, "finished", pass_at={int(k): score for k, score in scores.items()})


def kinds_changed(folder: Path, config: RunConfig) -> str:
    """Return what has changed since a run was made, as "of other code"; empty: nothing."""
    from experiments.run_dir.provenance import changes

    kinds = [KINDS[kind] for kind in changes(folder, config)]
    return f"of {' and '.join(kinds)}" if kinds else ""


def provenance(folder: Path, changed: str) -> str:
    """Say when and from which commit a run was made, and what has changed since.

    `changed`: of `kinds_changed`.
    """
    info = json.loads((folder / "run.json").read_text())
    again = "changed" if changed else "always"
    made = ", ".join(
        filter(None, [f"{folder}", f"ended {info['ended']}", f"commit {info['commit']}", changed])
    )
    return f"{made}; again={again} runs it again"


def begins_anew(folder: Path, config: RunConfig, again: Again) -> bool:
    """Return whether a run that was made before is to be made again, in a folder of its own."""
    from experiments.run_dir.provenance import changes

    return again == "always" or (again == "changed" and bool(changes(folder, config)))


def changes_line(runs: Iterable[tuple[Path, RunConfig]], again: Again) -> str | None:
    """Return a line on the runs of earlier commands that later changes are not in; None: all are.

    `runs`: their folders and configurations.
    """
    from experiments.config.resume import is_finished
    from experiments.run_dir.provenance import changes

    found = dict[tuple[str, str], list[list[str]]]()  # (state, kind) → what changed for each run
    for folder, config in runs:
        state = "finished" if is_finished(folder, config) else "stopped"
        for kind, names in changes(folder, config).items():
            found.setdefault((state, kind), []).append(names)
    if not found:
        return None
    parts = []
    for (state, kind), lists in sorted(found.items()):
        runs_are = "run is" if len(lists) == 1 else "runs are"
        names = sorted({name for names in lists for name in names})
        parts.append(f"{len(lists)} {state} {runs_are} of {_changed(kind, names)}")
    compares = f"`{COMPARE} A=OLD B=NEW` compares an algorithm's old runs with its new ones"
    stopped = any(state == "stopped" for state, _ in found)
    goes_on = " (without it stopped ones go on)" if stopped else ""
    end = f"again=changed runs them again{goes_on}" if again == "never" else "they begin anew"
    return f"{'; '.join(parts)}; {end}, and {compares}"


def _changed(kind: str, names: Sequence[str]) -> str:
    """Say what changed: its kind, and the first names."""
    return f"{KINDS[kind]}: {_listed(names)}" if names else KINDS[kind]


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])


def other_code_line(folder: Path, config: RunConfig) -> str | None:
    """Return a line if a run made with `from=FOLDER` has other code or packages; None: the same.

    Its data and model may be others because the command names others.
    """
    from experiments.run_dir.provenance import changes

    found = changes(folder, config)
    kinds = [kind for kind in ("code", "packages", "unrecorded") if kind in found]
    if not kinds:
        return None
    own = _way_back(folder, json.loads((folder / "run.json").read_text()))
    return f"that run is of {'; '.join(_changed(kind, found[kind]) for kind in kinds)}{own}"


def _way_back(folder: Path, info: dict[str, Any]) -> str:
    """Return the end of a line: how the code of a run comes back, if that is known."""
    if not (commit := info.get("commit")):
        return ""
    copy = f"; git worktree add COPY {commit.rstrip('+')}"
    if (diff := folder / "code.diff").is_file():
        return f"{copy} and git -C COPY apply {diff.absolute()} copy its code"
    if commit.endswith("+") or info.get("diff"):
        return f"{copy} copies its commit; its uncommitted changes were not kept"
    return f"{copy} copies its code"


def mixed_code_line(folder: Path, config: RunConfig) -> str | None:
    """Return a line if a run that is resumed had other code or packages before; None: the same."""
    from experiments.run_dir.provenance import changes

    found = changes(folder, config)
    if not found:
        return None
    changed = "; ".join(_changed(kind, names) for kind, names in found.items())
    return f"this run's steps so far are of {changed}; from={folder} begins it anew instead"


def record_outcome(
    folder: Path, number: int, outcome: Outcome, kept: bool = False, changed: str = ""
) -> None:
    """Write how job `number` of the sweep ended; `kept`: it had finished in an earlier sweep.

    `changed`: of `kinds_changed`.
    """
    result = {
        "status": outcome.status,
        "folder": str(outcome.folder) if outcome.folder else None,
        "error": outcome.error,
        "pass_at": outcome.pass_at,
        "kept": kept,
        "changed": changed,
    }
    with atomic_write(folder / f"{number}.json") as file:  # other jobs read it
        file.write_text(json.dumps(result) + "\n")


def job_labels(jobs: Sequence[Sequence[str]]) -> list[str]:
    """Return the overrides of each job that not all jobs share."""
    shared = set.intersection(*(set(job) for job in jobs))
    return [" ".join(o for o in job if o not in shared) or "(as given)" for job in jobs]


def print_summary(folder: Path, jobs: Sequence[Sequence[str]], later: bool = False) -> int:
    """Print a table of all jobs and a line for each failure; return the number of failures.

    `later`: a report of their folder would take later runs than those of the table.
    """
    from rich.console import Console
    from rich.table import Table

    labels = job_labels(jobs)
    results = [_read_result(folder / f"{number}.json") for number in range(len(jobs))]
    ks = sorted({int(k) for result in results for k in result["pass_at"]})
    table = Table("job", "status", *(f"pass@{k}" for k in ks), "run folder")
    for label, result in zip(labels, results, strict=True):
        scores = [result["pass_at"].get(str(k)) for k in ks]
        cells = ["–" if score is None else f"{score:.3f}" for score in scores]
        status = ", ".join(filter(None, [result["status"], result.get("changed")]))
        table.add_row(label, status, *cells, result["folder"] or "–")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000  # one row a line in files and pipes
    console.print(table)
    failures = [pair for pair in zip(labels, results, strict=True) if pair[1]["status"] == "failed"]
    for label, result in failures:
        print(f"failed: {label}: {result['error']}")
    folders = [Path(result["folder"]) for result in results if result["folder"]]
    if folders:
        print(_report_line(folders, later))
    return len(failures)


def _report_line(folders: Sequence[Path], later: bool) -> str:
    """Return the line with the command of a report on the runs in these folders.

    `later`: others beside them would be taken in their place, so it names each.
    """
    parents = ",".join(dict.fromkeys(str(folder.parent) for folder in folders))
    if not later:
        return f"report: {REPORT} RUNS={parents}"
    runs = ",".join(map(str, folders))
    return f"report of these runs: {REPORT} RUNS={runs}\nnot {REPORT} RUNS={parents}: {LATER_RUNS}"


def _read_result(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {"status": "not run", "folder": None, "error": None, "pass_at": {}}
    return json.loads(file.read_text())


def time_left(folder: Path, jobs: int) -> str:
    """Return the end of a line: how many jobs have ended, and how long the others will take.

    The rate is that of the jobs that ran to their end: failed and kept ones take no such time.
    """
    results = [_read_result(file) for file in folder.glob("[!.]*.json")]
    if not 0 < len(results) < jobs:
        return ""
    counts = f"; {len(results)} of {jobs} jobs"
    ran = sum(result["status"] == "finished" and not result["kept"] for result in results)
    if not ran:
        return counts
    began = time.mktime(time.strptime(folder.name[:STAMP_CHARS], STAMP))
    each = (time.time() - began) / ran
    return f"{counts}, about {duration(each * (jobs - len(results)))} left"
