"""`python run.py algo=spo task=taco`: compose the configuration, check it, hand it to the runner.

With -m, every combination of the given values is a job. All jobs are composed and checked before
the first one starts, so a typo cannot end a sweep half way.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.metadata import version

from experiments.run_dir.interrupts import exit_on_interrupt


def main() -> None:
    exit_on_interrupt("interrupted before the run began")  # before the imports that take a while
    gc.disable()  # until the imports are done, which leave next to nothing to collect
    from experiments.errors import exit_with
    from experiments.run_dir.provenance import note_command_line

    note_command_line(sys.argv)
    exit_with(lambda: run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Show what the command line asks to see, or run its jobs; returns the exit status."""
    from experiments.config.composition import config_of, is_sweep, jobs_of, shown_text
    from experiments.launch import resume, run_alone
    from experiments.run_dir.provenance import commit
    from experiments.runner import check_runs, run_sweep

    if "--version" in arguments:
        print(f"spo-bench {version('spo-bench')} commit {commit()}")
        return 0
    if (text := shown_text(arguments)) is not None:
        print(text)
        return 0
    if any(argument.startswith("resume=") for argument in arguments):
        return resume(arguments)
    if is_sweep(arguments):
        return run_sweep(arguments)
    config = config_of(jobs_of(arguments)[0])
    check_runs([config])
    return run_alone(config)


if __name__ == "__main__":
    main()
