"""The state that a run resumes from: plain values, tables and tensors of its parts.

Random streams are seeded by name and step (`experiments.seeds`), so they have no position to keep.
The reference policy and the problems follow from the configuration and are checked against it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from experiments.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.build import Parts
    from experiments.run_dir.records import Records

# fact in run.json → the keys behind it
BASE = {
    "weights": "model.path",
    "data_hash": "task.path or task.prompt",
    "prompts_hash": "task.prompt, or the tokenizer or chat template in model.path",
    "observations_hash": "task.feedback_prompt, or the chat template in model.path",
}


@runtime_checkable
class Stateful(Protocol):
    """A part with state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass
class ResumeState:
    """How far a run has come, and the state of its parts there."""

    step: int = 0
    row: dict[str, Any] | None = None  # of a step that is trained and not yet measured
    best: float = float("-inf")  # pass@k of the best evaluation of trained weights
    part_states: dict[str, Any] | None = None  # None: an update is half done
    tables: dict[str, Any] = field(default_factory=dict)

    @property
    def recorded(self) -> int:
        """Steps whose rows and evaluations are recorded."""
        return self.step if self.row is None else self.step - 1

    def note(self, parts: Parts, step: int, row: dict[str, Any] | None) -> None:
        """Take the state after `step`; `row`: its metrics while it is not measured yet."""
        self.step, self.row = step, None if row is None else dict(row)
        self.part_states, self.tables = states_of(parts), tables_of(parts)

    def plain(self) -> dict[str, Any]:
        """Return everything but the tables."""
        return {name: value for name, value in vars(self).items() if name != "tables"}


def states_of(parts: Parts) -> dict[str, Any]:
    """Copy all state but tensors and tables; cheap enough for every step."""
    states = {name: part.state_dict() for name, part in _stateful(parts).items()}
    stats = {name: asdict(judge.stats) for name, judge in _judges(parts).items()}
    random: dict[str, Any] = {"cpu": torch.get_rng_state()}  # a custom algorithm may draw from it
    if torch.cuda.is_initialized():
        random["cuda"] = torch.cuda.get_rng_state_all()
    return {"parts": states, "stats": stats, "random": random}


def tables_of(parts: Parts) -> dict[str, Any]:
    """Return the replay buffer's Arrow tables, uncopied: they never change in place."""
    replay = parts.rollouts.replay
    return {} if replay is None else replay.tables()


def tensors_of(parts: Parts) -> dict[str, Any]:
    """Return the tensors of learner and weight sync, uncopied: only an update changes them."""
    return {"learner": parts.learner.state_dict(), "weight_sync": parts.weight_sync.state_dict()}


def check_base(records: Records, base: dict[str, Any]) -> None:
    """Raise UserError if model, data or texts are not those that the run began with.

    Log-probs of replayed responses hold in the context that they were computed in. run.json then
    has the checkpoint's facts again. Checkpoints of older code hold fewer.
    """
    for fact, before in base.items():
        if (now := records.info[fact]) != before:
            records.describe(**base)
            raise UserError(
                f"{BASE[fact]}: {fact} {now}, but the checkpoint was written with {before}; "
                "restore what the run began with"
            )


def restore(parts: Parts, states: dict[str, Any], checkpoint: Path, tables: dict[str, Any]) -> None:
    """Restore what `states_of`, `tensors_of` and `tables_of` returned.

    Each rank reads its tensors from the checkpoint itself.
    """
    parts.learner.load_from(checkpoint)
    parts.weight_sync.load_from(checkpoint)
    for name, part in _stateful(parts).items():
        extra = (tables,) if part is parts.rollouts.replay else ()
        part.load_state_dict(states["parts"][name], *extra)
    for name, judge in _judges(parts).items():
        vars(judge.stats).update(states["stats"][name])
    torch.set_rng_state(states["random"]["cpu"])
    if "cuda" in states["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["random"]["cuda"])


def _judges(parts: Parts) -> dict[str, Any]:
    return {"judge": parts.judge, "eval_judge": parts.eval_judge}


def _stateful(parts: Parts) -> dict[str, Any]:
    """Return the parts that have state, by name."""
    named = {
        "ledger": parts.ledger,
        "rollouts": parts.rollouts,
        "offline": parts.rollouts.offline,
        "replay": parts.rollouts.replay,
        "logprob_check": parts.logprob_check,
        "reward_shaping": parts.reward_shaping,
        "initial_values": parts.initial_values,
        **_judges(parts),
    }
    return {name: part for name, part in named.items() if isinstance(part, Stateful)}
