"""The machine that a run or a benchmark is on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def hardware() -> dict[str, Any]:
    """What times and the last bits of a run hang on; memory in GB (2^30 bytes)."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cpu": processor(),
        # With others a loss has other last digits, on the same CPU.
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cpus": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's name; with its family and model, because a virtual machine's may be 'AMD EPYC'."""
    try:
        first = cpuinfo.read_text().split("\n\n")[0]
    except OSError:
        return platform.processor()
    told = dict(map(str.strip, line.split(":", 1)) for line in first.splitlines() if ":" in line)
    numbers = (f"{each} {told[key]}" for each, key in _NUMBERS.items() if key in told)
    return ", ".join([told.get("model name") or platform.processor(), *numbers])


_NUMBERS = {"family": "cpu family", "model": "model"}
