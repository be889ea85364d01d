"""`make anatomy`: the gradients of all objectives on the same batches, side by side.

One short run of GRPO without a KL gives the policies: the base, a half-trained and a nearly
collapsed one. Each generates batches, one per seed. Every objective's gradient is taken on them at
the policy that generated them (fresh) and at the same run's policy `lag` steps later (stale). The
gradient is that of one optimiser step, from the learner that runs use, before clipping and Adam.
Then each objective is given groups that are all right, all wrong and half right.

Critics predict 0, as at the start of a run. The average of PPO-EWMA is the rollout policy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from envs.command_line import parse_arguments, quiet_when_unread
from experiments.anatomy.options import Options
from experiments.errors import UserError
from experiments.studies.cli import choose, run_command, say


def act(arguments: Sequence[str]) -> int:
    """Measure and write the page; returns the exit status."""
    from experiments.anatomy.objectives import objectives

    try:
        options = parse_arguments(Options, [a for a in arguments if a != "run"])
    except ValueError as error:
        raise UserError(str(error)) from error
    names = choose("only", options.only, list(objectives()))
    from experiments.anatomy.measure import measure  # torch, after mistakes are found
    from experiments.anatomy.page import write

    write(measure(options, names), options)
    say(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(run_command(["run", *sys.argv[1:]], __doc__ or "", Options, act))
