"""The machine of a run or a benchmark: its hardware, its CPU time, this process's peak memory."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import re
import resource
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any


def hardware() -> dict[str, Any]:
    """Describe the hardware that a run's times and last bits depend on; memory in GB (2^30 B)."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cpu": processor(),
        # Another instruction set changes the last digits of a loss, on the same CPU.
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cpus": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def processor() -> str:
    """Return the CPU's name, family and model: a virtual machine's name may be just 'AMD EPYC'."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", first, re.MULTILINE))
        family, model = facts.get("cpu family"), facts.get("model")
        return f"{facts['model name']}, family {family}, model {model}" if len(facts) == 3 else ""
    return platform.processor()


TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    """CPU seconds of this process and its descendants. Wall time says little on a busy machine."""
    ticks, children = {}, defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(folder.name))
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # waited-for children included
    total, pending = 0, [os.getpid()]
    while pending:
        process = pending.pop()
        total += ticks.get(process, 0)
        pending += children[process]
    return total * TICK_S


def machine_cpu_s() -> float:
    """CPU seconds of all processes, for work that is not done by descendants of this one."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, softirq = map(int, fields[1:8])
    return (user + nice + system + irq + softirq) * TICK_S


SELF = Path("/proc/self")
RESET_PEAK = "5"  # proc_pid_clear_refs(5)


class PeakMemory:
    """The most memory that this process held since this object was made, on host and GPUs.

    The marks of the kernel and of torch cover the whole life of a process. They are reset here, so
    that a run of a sweep does not inherit the peak of the run before it.
    """

    def __init__(self) -> None:
        gc.collect()
        with suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)  # give back what the run before freed
        with suppress(OSError):  # an old kernel, or no /proc: the peak stays that of the process
            (SELF / "clear_refs").write_text(RESET_PEAK)
        import torch

        for device in _gpus():
            torch.cuda.reset_peak_memory_stats(device)

    def columns(self) -> dict[str, float]:
        """Return memory/peak_mb of the host, and memory/gpuN_peak_mb of GPUs in use, in MiB."""
        row = {"memory/peak_mb": _host_peak_kb() / 1024}
        import torch

        for device in _gpus():
            row[f"memory/gpu{device}_peak_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
        return row


def _host_peak_kb() -> int:
    with suppress(OSError):
        for line in (SELF / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _gpus() -> range:
    import torch

    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
