"""SPO-Bench: train a language model to write contest programs, with one of several algorithms.

python run.py [choice=NAME | key=VALUE]...
python run.py -m algo=spo,ppo,grpo seed=0,1,2      a sweep: every combination
python run.py resume=FOLDER [steps=N]              resume a stopped run or extend one
python run.py --config-path FOLDER [key=VALUE]...  a new run with the recorded keys of another
python run.py --config-dir FOLDER [choice=NAME]... with choices of your own, laid out as conf/
python run.py --cfg job [...]                      check and print the configuration
python run.py algo=ppo engine=vllm --help          the keys of these choices

"spo" is Soft Policy Optimization (arXiv 2503.05453). `python -m algorithms` compares the
algorithms; docs/guide/running.md tells more.
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
    """Show what the command line asks to see, or run its jobs; returns the exit status.

    All jobs of a sweep are composed and checked before the first one starts, so a typo cannot end
    it half way.
    """
    from experiments.config.composition import config_of, is_sweep, jobs_of, shown_text
    from experiments.launch import resume, run_alone
    from experiments.run_dir.provenance import commit
    from experiments.runner import check_runs, run_sweep

    if "--version" in arguments:
        print(f"spo-bench {version('spo-bench')} commit {commit()}")
        return 0
    if (text := shown_text(arguments, __doc__ or "")) is not None:
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
