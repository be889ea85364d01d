"""Merge the adapter that a run trained: `python -m experiments.export run=FOLDER out=FOLDER`.

The adapter of the last checkpoint is added to the base as engines get it: in float32, rounded once.
The result loads as `model.path=OUT`, in transformers and in vLLM.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from experiments.config.composition import recorded_config
from experiments.errors import UserError, command
from experiments.policy import loading, lora
from experiments.policy.policy import copy_weights, frozen_copy


@dataclass
class Options:
    """The command line."""

    run: Path  # a run folder
    out: Path  # folder of the model


def export(run: Path, out: Path) -> None:
    """Write model and tokenizer to `out`. Raises UserError."""
    config = recorded_config(run, f"run={run}").model
    steps = json.loads((run / "run.json").read_text()).get("checkpoints")
    if config.adapter != "lora" or not steps:
        raise UserError(f"run={run}: it has no checkpoint of an adapter")
    base, tokenizer = loading.load(config)
    policy = lora.adapted(base, config, seed=0)
    lora.load(policy, run / "checkpoints" / max(steps, key=steps.get))
    merged = frozen_copy(base)
    copy_weights(policy, into=merged)
    merged.model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    print(f"model.path={out}")


if __name__ == "__main__":
    command(Options, lambda options: export(options.run, options.out))
