"""The state of a pretraining on disk, so that an interruption costs minutes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from experiments.nano.corpus import Corpus
from experiments.nano.recipes import Recipe

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


@dataclass
class Checkpoint:
    """Everything that the next steps depend on; the file is whole at any time."""

    file: Path
    recipe: Recipe
    corpus: Corpus
    model: LlamaForCausalLM
    optimizer: torch.optim.Optimizer

    def save(self, step: int) -> None:
        """Write the state before `step`. No conversation that was drawn may be left untrained."""
        state = {
            "step": step,
            "recipe": asdict(self.recipe),
            "corpus": self.corpus.rng.getstate(),
            "torch": torch.get_rng_state(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        temporary = self.file.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.file)

    def load(self) -> int:
        """Restore the state, if there is a file. Returns the number of steps done.

        Raises ValueError if the file is of another recipe.
        """
        if not self.file.exists():
            return 0
        state = torch.load(self.file, weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            raise ValueError(
                f"{self.file} is an unfinished training of another recipe: delete it, or take"
                " another out="
            )
        self.corpus.rng.setstate(state["corpus"])
        torch.set_rng_state(state["torch"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])
