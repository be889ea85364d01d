"""One experiment: its runs in groups, the evaluated models, and what is computed of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from analysis import comparisons
from analysis.budgets import smoothing_window
from analysis.front import crossing_table, front_differences
from analysis.groups import EvaluatedModel, Group, base_key, common_ks, evaluated_models, group_runs
from analysis.metrics import reported_metrics
from analysis.programs import precompute_normal_forms
from analysis.runs import Contrast, PackedStudy, Run, RunError, contrasts_of, is_packed, load_run
from envs.command_line import parse_arguments


class Plan(NamedTuple):
    """What was named before the runs were compared, beside the contrasts of their study."""

    margin: float | None = None  # a difference in pass@k of at most this does not matter
    control: str | None = None  # the label of the group that each other one is compared with
    presets: Mapping[str, Sequence[str]] | None = None  # name → labels that the page shows at once


UNPLANNED = Plan()
T = TypeVar("T")


@dataclass(frozen=True)
class Experiment:
    """The runs of one `name`: their groups, and the evaluated models.

    `models` is empty if nothing was evaluated yet. `notes` are on the k that were left out.
    """

    name: str
    groups: list[Group]
    ks: tuple[int, ...]
    models: list[EvaluatedModel]
    notes: list[str]
    plan: Plan = UNPLANNED
    named_contrasts: Sequence[Contrast] = ()

    @cached_property
    def pairs(self) -> list[comparisons.PairedDifference]:
        """The paired differences of the trained models, in every metric."""
        temperatures = (None, *self.temperatures)
        metrics = [m.name for t in temperatures for m in reported_metrics(self.ks, t)]
        pairs = comparisons.paired_differences(self.trained, metrics)
        pairs += front_differences(self.trained, self.ks)
        pairs = comparisons.with_contrasts(
            pairs,
            comparisons.contrast_tests([*pairs, *self.interactions], self.named_contrasts),
        )
        return comparisons.with_equality(pairs, self.plan.margin)

    @cached_property
    def starts(self) -> dict[str, str]:
        """The label of each trained model → that of its base, if this was evaluated."""
        bases = {base_key(base.runs[0]): base.label for base in self.bases}
        keys = {model.label: base_key(model.runs[0]) for model in self.trained}
        return {label: bases[key] for label, key in keys.items() if key in bases}

    @cached_property
    def against_control(self) -> list[comparisons.PairedDifference]:
        """Each other group's difference from the control, in every metric; [] without a control."""
        return comparisons.control_differences(self.pairs, self.plan.control, self.plan.margin)

    @cached_property
    def contrasts(self) -> list[comparisons.ContrastTest]:
        """The contrasts named before the runs, in every metric."""
        return comparisons.contrast_tests([*self.pairs, *self.interactions], self.named_contrasts)

    @cached_property
    def interactions(self) -> list[comparisons.PairedDifference]:
        """The differences of two differences among the contrasts."""
        return comparisons.interactions(self.trained, self.named_contrasts)

    @cached_property
    def crossings(self) -> pd.DataFrame:
        """The number of tries from which the base solves as much, for each trained model."""
        return crossing_table(self.models)

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The further temperatures at which any model was evaluated."""
        return tuple(sorted({t for model in self.models for t in model.temperatures}))

    @property
    def window(self) -> int:
        """The number of steps over which training curves are averaged."""
        return smoothing_window(self.groups)

    @property
    def packed(self) -> bool:
        """Whether the runs are those of a packed study, without samples and their programs."""
        return any(run.packed for run in self.runs)

    @property
    def bases(self) -> list[EvaluatedModel]:
        return [model for model in self.models if model.is_base]

    @property
    def trained(self) -> list[EvaluatedModel]:
        return [model for model in self.models if not model.is_base]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in (*group.runs, *group.repeats)]


def build_experiment(name: str, runs: Sequence[Run], plan: Plan = UNPLANNED) -> Experiment:
    """Group and score these runs as one experiment; labels name their differences."""
    evals = (samples for run in runs for samples in (run.evals, *run.further_evals.values()))
    accepted = (samples.loc[samples["verdict"] == "ACCEPTED", "program"] for samples in evals)
    precompute_normal_forms(
        program for programs in accepted for program in np.asarray(programs.unique(), object)
    )
    groups = group_runs(runs)
    ks, notes = common_ks(runs)
    models = evaluated_models(groups, ks)
    return Experiment(name, groups, ks, models, notes, plan, contrasts_of(runs))


def read_experiment(
    name: str, paths: Sequence[Path], plan: Plan = UNPLANNED, skip_damaged: bool = False
) -> tuple[Experiment | None, list[str]]:
    """Read one experiment, and a line per damaged run that was left out; None if all were.

    `paths` are run folders, or one packed study, whose file completes the plan. Raises RunError for
    a damaged run, unless these are to be skipped.
    """
    runs: list[Run] = []
    skipped: list[str] = []
    for path in paths:
        try:
            if is_packed(path):
                packed = PackedStudy(path)
                runs += packed.runs.values()
                plan = Plan(**{k: getattr(plan, k) or packed.study.get(k) for k in Plan._fields})
            else:
                runs.append(load_run(path))
        except RunError as error:
            if not skip_damaged:
                raise
            skipped.append(f"Damaged and left out: {str(error).partition(';')[0]}.")
    return build_experiment(name, runs, plan) if runs else None, skipped


# Commands.


def run_command(
    schema: type[T],
    check: Callable[[T], None],
    command: Callable[[T], int],
    arguments: Sequence[str],
) -> int:
    """Run a command with its key=value arguments, fields of `schema`, and return the exit code.

    0: done, or that of the command; 1: bad runs or files; 2: arguments that are bad, as far as they
    can be read or by `check`'s ValueError; 130: interrupted.
    """
    try:
        options = parse_arguments(schema, arguments)
        check(options)
    except ValueError as error:
        print(f"error: {error} (see --help)", file=sys.stderr)
        return 2
    try:
        return command(options)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; check its permissions", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; run the same command to start again", file=sys.stderr)
        return 130
    return 1
