"""The machine that a run or a benchmark is on."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import resource
from contextlib import suppress
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


# The most memory that this process held since a run began, on the host and on its GPUs. The
# kernel's and torch's own marks are of the process's whole life; here they are set back, so that a
# run of a sweep does not inherit the peak of the one before it.


SELF = Path("/proc/self")
SET_PEAK_BACK = "5"  # proc_pid_clear_refs(5)


class PeakMemory:
    """Marks set back when it is made, read by `columns`."""

    def __init__(self) -> None:
        gc.collect()
        with suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)  # what the run before freed is not this one's
        with suppress(OSError):  # an old kernel, or no /proc: the peak stays that of the process
            (SELF / "clear_refs").write_text(SET_PEAK_BACK)
        for device in _gpus():
            _cuda().reset_peak_memory_stats(device)

    def columns(self) -> dict[str, float]:
        """memory/peak_mb of the host, and of each GPU in use memory/gpuN_peak_mb, in MiB."""
        row = {"memory/peak_mb": _host_peak_kb() / 1024}
        for device in _gpus():
            row[f"memory/gpu{device}_peak_mb"] = _cuda().max_memory_allocated(device) / 2**20
        return row


def _host_peak_kb() -> int:
    with suppress(OSError):
        for line in (SELF / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _gpus() -> range:
    return range(_cuda().device_count() if _cuda().is_initialized() else 0)


def _cuda():
    import torch

    return torch.cuda
