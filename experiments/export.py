"""Merge the adapter that a run trained: `python -m experiments.export run=FOLDER [out=FOLDER]`.

The adapter of the last checkpoint is added to the base as engines get it: in float32, rounded once.
The result loads as `model.path=OUT`, in transformers and in vLLM.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from envs.command_line import parse_arguments, quiet_when_unread
from experiments.config.schema import ModelConfig
from experiments.errors import UserError
from experiments.policy.policy import copy_weights


@dataclass
class Arguments:
    """The command line."""

    run: str  # a run folder
    out: str | None = None  # folder of the model; by default RUN/exported


def export(run: Path, out: Path | None = None) -> Path:
    """Write model and tokenizer to `out` (default: RUN/exported); return `out`.

    Raises UserError.
    """
    if not (run / "run.json").is_file():
        raise UserError(f"run={run}: not a run folder; run folders are in `outputs/NAME/`")
    checkpoint = _last_checkpoint(run)
    if (checkpoint / "model.safetensors.index.json").exists() or list(checkpoint.glob("model*")):
        raise UserError(
            f"run={run}: its checkpoint has whole weights, no adapter; use model.path={checkpoint}"
        )
    out = out or run / "exported"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"out={out}: {error.strerror}; choose a writable folder") from error
    from experiments.policy import loading, lora

    config = ModelConfig(**OmegaConf.load(run / "config.yaml").model)
    base, tokenizer = loading.load(config)
    policy = lora.adapted(base, config, seed=0)
    lora.load(policy, checkpoint)
    merged = loading.frozen_copy(base)
    copy_weights(policy, into=merged)
    merged.model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def _last_checkpoint(run: Path) -> Path:
    try:
        steps = json.loads((run / "run.json").read_text()).get("checkpoints")
    except (ValueError, AttributeError) as error:
        raise UserError(f"run={run}: its run.json cannot be read: {error}") from error
    if not steps:
        raise UserError(f"run={run}: it has no checkpoint yet")
    return run / "checkpoints" / max(steps, key=steps.get)


def main() -> None:
    try:
        arguments = parse_arguments(Arguments, sys.argv[1:])
        out = export(Path(arguments.run), Path(arguments.out) if arguments.out else None)
    except (UserError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"model.path={out}")


if __name__ == "__main__":
    with quiet_when_unread():
        main()
