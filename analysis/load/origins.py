"""What each group started from: the base's weights or another group's, and recorded responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.load.groups import RUN_SUFFIX, Group, experiment_and_algo, flatten, join_names

BASE = "base"


def starting_points(groups: Sequence[Group]) -> list[str]:
    """Return for each group "base", or the label of the group whose final weights it took.

    Several bases are told apart by the model's name, or by its path where names are the same. A run
    of no group here is named by its experiment and algorithm. "" where no model was recorded.
    """
    labels = _labels_by_folder(groups)
    models = [_model(group) for group in groups]
    parents = [_label_of_path(path, labels) for _, path in models]
    pairs = list(zip(models, parents, strict=True))
    bases = {model for model, parent in pairs if any(model) and not parent}
    by_name = len({name for name, _ in bases}) == len(bases)
    texts = {(name, path): f"{BASE} {name if by_name else path}" for name, path in bases}
    if len(bases) == 1:
        texts = dict.fromkeys(bases, BASE)
    return [parent or texts.get(model, "") for model, parent in pairs]


def _model(group: Group) -> tuple[str, str]:
    """Return name and path of the model that a group starts from, "" where not recorded."""
    settings = flatten(group.runs[0].config)
    return str(settings.get("model.name") or ""), str(settings.get("model.path") or "")


def recorded_responses(groups: Sequence[Group]) -> list[str]:
    """Return for each group the labels of those whose recorded responses it uses; "" if none.

    Frozen batches are another run's batches in their order, without responses of the group's own.
    """
    labels = _labels_by_folder(groups)
    texts = []
    for group in groups:
        settings = flatten(group.runs[0].config)
        folders = map(str, settings.get("replay.from_runs") or ())
        named = dict.fromkeys(_label_of_path(folder, labels) or folder for folder in folders)
        frozen = ", frozen batches" if settings.get("replay.frozen") else ""
        texts.append(join_names(named) + frozen if named else "")
    return texts


def _labels_by_folder(groups: Iterable[Group]) -> dict[str, str]:
    """Return name of a run folder → label of its group."""
    return {run.path.name: group.label for group in groups for run in (*group.runs, *group.repeats)}


def _label_of_path(path: str, labels: dict[str, str]) -> str:
    """Return the label of the run that a path lies in, else its experiment/algorithm, else ""."""
    for folder in (Path(path), *Path(path).parents):
        if folder.name in labels:
            return labels[folder.name]
        if RUN_SUFFIX.search(folder.name):
            return experiment_and_algo(folder)
    return ""
