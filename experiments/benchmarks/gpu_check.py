"""`make gpu-check`: everything that only a GPU can show, in under nine minutes on 80 GB.

Every part runs in a process of its own, within the remaining time. A part that cannot run, for want
of vLLM, memory, time or a GPU, is reported with its reason. `small=true` tries every part at tiny
shapes, in this process, on any device. `model=NAME` tries that model instead of random weights of
three sizes. Results: `gpu.json` and `gpu.md`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import PositiveFloat

from experiments.benchmarks import common
from experiments.benchmarks.common import in_new_process

NO_GPU = "no GPU: a trial at tiny shapes, whose figures mean nothing"


@dataclass
class Options:
    """The command line."""

    # of conf/model, a folder, a .gguf file or a hub id; null: random weights of three sizes
    model: str | None = None
    small: bool = False  # a trial at tiny shapes, which needs no GPU
    budget: PositiveFloat = 510.0  # seconds for all parts
    out: Path = common.FOLDER / "gpu"  # folder of the results


def main(options: Options) -> int:
    """Run all parts and write the page. Returns 1 if any failed."""
    import torch

    from experiments.benchmarks.gpu_parts import SkippedError, planned, run_part

    start, rows = time.monotonic(), []
    skipped, failed = dict[str, str](), dict[str, str]()
    for key in planned(options.model):
        remaining = options.budget - (time.monotonic() - start)
        print(key, flush=True)
        try:
            if remaining < 5:
                raise SkippedError(f"no time left of {options.budget:.0f} s")
            if options.small:
                part = run_part(key, small=True)
            else:
                part = in_new_process(run_part, key, False, timeout_s=remaining)
            rows += [replace(each, case=f"{key}: {each.case}") for each in part]
        except TimeoutError:
            skipped[key] = f"not done within the remaining {remaining:.0f} s"
        except SkippedError as reason:
            skipped[key] = str(reason)
        except Exception as error:
            failed[key] = f"{type(error).__name__}: {error}"
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else NO_GPU
    seconds = round(time.monotonic() - start)
    facts = {"device": device, "seconds": seconds, "skipped": skipped, "failed": failed}
    common.finish("gpu", rows, options.out, **facts)
    return min(1, len(failed))


if __name__ == "__main__":
    common.command(Options, main)
