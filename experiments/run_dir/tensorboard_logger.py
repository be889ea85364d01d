"""TensorBoard: event files in the run folder; `tensorboard --logdir outputs` shows all runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.errors import UserError

SHOWN = 8  # programs of an evaluation, each of another problem


class TensorboardLogger:
    """One folder of events; what was logged after the checkpoint that a run goes on from is cut."""

    def __init__(self, folder: Path, settings: dict[str, Any], recorded: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("pip install -e '.[tensorboard]' brings it") from error
        self.writer = SummaryWriter(
            str(folder / "tensorboard"), purge_step=recorded + 1 if recorded else None
        )
        self.writer.add_text("config", _as_code(OmegaConf.to_yaml(settings)), recorded)

    def step(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if name != "step":
                self.writer.add_scalar(name, value, step)

    def evaluation(
        self, step: int, values: dict[str, float], samples: Sequence[dict[str, Any]]
    ) -> None:
        for name, value in values.items():
            if name.startswith("eval/"):
                self.writer.add_scalar(name, value, step)
        for row in [row for row in samples if row["sample"] == 0][:SHOWN]:
            told = f"{row['verdict']}, {row['passed']} of {row['total']} tests"
            text = f"{told}\n\n{_as_code(row['program'])}"
            self.writer.add_text(f"eval/samples/{row['problem']}", text, step)
        self.writer.flush()

    def close(self, status: str) -> None:
        self.writer.add_text("status", status)
        self.writer.close()


def _as_code(text: str) -> str:
    """Indented, it is shown as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())
