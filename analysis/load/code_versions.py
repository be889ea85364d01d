"""Which files of the code differ between runs, by the digests in their folders, and what to say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from analysis.load.groups import Group, join_names
from analysis.load.run_folders import Run

DIGESTS = "digests.json"  # experiments.run_dir.provenance writes it


def differing_code(runs: Sequence[Run]) -> list[str] | None:
    """Return, sorted, the files that runs import in different versions; None: not recorded.

    A file that only one run imports is in no difference; one that had changed when a run was
    resumed is.
    """
    versions = dict[str, set[str]]()
    for run in runs:
        code = _code(run)
        if code is None:
            return None
        for file, digest in code.items():
            versions.setdefault(file, set()).add(digest)
    resumed = (entry for run in runs for entry in run.info.get("resumed") or ())
    changed = {file for entry in resumed for file in entry.get("changed", {}).get("code", ())}
    return sorted(changed | {file for file, found in versions.items() if len(found) > 1})


def code_caveats(groups: Sequence[Group]) -> Iterator[str]:
    """Yield sentences on groups whose runs are of different code, and on the commits of all."""
    for group in groups:
        if files := differing_code(group.runs):
            yield (
                f"{group.label}: the code of its runs differs in {join_names(files)}, so its "
                "numbers are of several versions. The command of their sweep or study makes the "
                "older ones anew with again=changed, and run.py from=FOLDER a single run."
            )
    runs = [run for group in groups for run in group.runs]
    yield from _commits(runs)
    if unknown := [run.name for run in runs if not run.info.get("commit")]:
        yield f"No commit was recorded for {join_names(unknown)}: the code cannot be identified."
    yield from _uncommitted([run for run in runs if _is_uncommitted(run)])


def _commits(runs: Sequence[Run]) -> Iterator[str]:
    commits = sorted({str(run.info["commit"]) for run in runs if run.info.get("commit")})
    files = differing_code(runs)
    consequence = "the code is not the same"
    if files is not None:
        names = f"differ in {join_names(files)}" if files else "are the same"
        consequence = f"the files of code that runs have in common {names}"
    if len(commits) > 1:
        listed = join_names(commits)
        yield f"The runs have {len(commits)} different commits ({listed}): {consequence}."
    elif files:
        yield f"The runs have the same commit with other changes: {consequence}."


def _uncommitted(runs: Sequence[Run]) -> Iterator[str]:
    """Yield which files had uncommitted changes, but for new ones that none of the runs used.

    A new file of conf/ is not named either: its values stand in config.yaml.
    """
    codes = [_code(run) for run in runs]
    used = None if None in codes else {file for code in codes if code for file in code}
    by_files: dict[tuple[str, ...] | None, list[str]] = {}
    for run in runs:
        files = _changed_files(run)
        if files is not None:
            files = {
                file: is_new
                for file, is_new in files.items()
                if not is_new or not (_is_setting(file) or (used is not None and file not in used))
            }
        by_files.setdefault(None if files is None else tuple(files), []).append(run.name)
    for named, names in by_files.items():
        if named is None:
            yield f"The code had uncommitted changes in {join_names(names)}."
        elif named:
            yield f"{join_names(named)} had uncommitted changes in {join_names(names)}."


def _changed_files(run: Run) -> dict[str, bool] | None:
    """Return file → whether it was new, of the patch in a run folder; None if it was not kept."""
    diff = run.info.get("diff")
    name = diff.get("file") if isinstance(diff, dict) else None
    try:
        lines = (run.path / str(name)).read_text(errors="replace").split("\n")
    except OSError:
        return None
    files: dict[str, bool] = {}
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("diff --git "):  # lines of content begin with a blank, + or -
            file = re.sub(r'.* "?b/(.*?)"?', r"\1", line)  # odd names stand in quotes
            files[file] = after.startswith("new file")
    return files or None


def _is_setting(file: str) -> bool:
    return file.startswith("conf/") and file.endswith(".yaml")


def _is_uncommitted(run: Run) -> bool:
    """Whether files that git tracks had changed (a plus sign), or new ones were there (`diff`)."""
    return str(run.info.get("commit")).endswith("+") or bool(run.info.get("diff"))


def _code(run: Run) -> dict[str, str] | None:
    """Return file → digest of the code that a run imported; None where no such record is."""
    try:
        return dict(json.loads((run.path / DIGESTS).read_text())["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
