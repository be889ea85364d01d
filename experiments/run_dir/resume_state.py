"""All that a run's parts know which decides what comes next, as plain values and tensors.

Random streams are seeded by name and step (`experiments.seeds`), so they have no place to keep; the
reference and the problems are what the configuration says, and are held against what they were.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from experiments.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.build import Parts

BASE = {"weights": "model.path", "data_hash": "task.path"}  # fact in run.json → where it comes from


@dataclass
class ResumeState:
    """How far a run has come, and all that its parts knew there."""

    step: int = 0
    row: dict[str, Any] | None = None  # of a step that is trained, not yet measured
    best: float = float("-inf")  # pass@k of the best evaluation of trained weights
    progress: dict[str, Any] | None = None  # None: there is no going on from here
    tables: dict[str, Any] = field(default_factory=dict)

    @property
    def recorded(self) -> int:
        """Steps whose rows and evaluations are behind."""
        return self.step if self.row is None else self.step - 1

    def note(self, parts: Parts, step: int, row: dict[str, Any] | None) -> None:
        """`step` is trained; its row is given where that is all."""
        self.step, self.row = step, None if row is None else dict(row)
        self.progress, self.tables = progress_of(parts), tables_of(parts)


def progress_of(parts: Parts) -> dict[str, Any]:
    """A copy of everything but tensors, cheap enough to be made after every step."""
    known = {name: part.state_dict() for name, part in _remembering(parts).items()}
    stats = {name: asdict(judge.stats) for name, judge in _judges(parts).items()}
    random = {"cpu": torch.get_rng_state()}  # an algorithm of one's own may draw from it
    if torch.cuda.is_initialized():
        random["cuda"] = torch.cuda.get_rng_state_all()
    return {"parts": known, "stats": stats, "random": random}


def tables_of(parts: Parts) -> dict[str, Any]:
    """The replay store's rows, in Arrow tables, which never change in place; no copies."""
    replay = parts.rollouts.replay
    return {} if replay is None else replay.tables()


def tensors_of(parts: Parts) -> dict[str, Any]:
    """The learner's state and the writer's, which change with each update alone; no copies."""
    return {"learner": parts.learner.state_dict(), "weight_sync": parts.weight_sync.state_dict()}


def check_base(info: dict[str, Any], base: dict[str, Any]) -> None:
    """Raises UserError where the model or the data are no longer what the run began with."""
    for fact, key in BASE.items():
        if info[fact] != base[fact]:
            raise UserError(
                f"{key}: {fact} {info[fact]}, but the checkpoint was written with {base[fact]}; "
                "bring back what the run began with"
            )


def restore(
    parts: Parts, progress: dict[str, Any], checkpoint: Path, tables: dict[str, Any]
) -> None:
    """Bring all parts to where `progress_of`, `tensors_of` and `tables_of` found theirs.

    Each rank takes its tensors from the checkpoint itself.
    """
    parts.learner.load_from(checkpoint)
    parts.weight_sync.load_from(checkpoint)
    for name, part in _remembering(parts).items():
        held = (tables,) if part is parts.rollouts.replay else ()
        if name in progress["parts"]:  # a judge that never learns may have saved nothing
            part.load_state_dict(progress["parts"][name], *held)
    for name, judge in _judges(parts).items():
        vars(judge.stats).update(progress["stats"][name])
    torch.set_rng_state(progress["random"]["cpu"])
    if "cuda" in progress["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(progress["random"]["cuda"])


def _judges(parts: Parts) -> dict[str, Any]:
    return {"judge": parts.judge, "eval_judge": parts.eval_judge}


def _remembering(parts: Parts) -> dict[str, Any]:
    """Parts by name that have something to remember."""
    everyone = {
        "ledger": parts.ledger,
        "rollouts": parts.rollouts,
        "offline": getattr(parts.rollouts, "offline", None),
        "replay": parts.rollouts.replay,
        "monitor": parts.monitor,
        "shaping": parts.shaping,
        "initial_values": parts.initial_values,
        **_judges(parts),
    }
    return {name: part for name, part in everyone.items() if hasattr(part, "state_dict")}
