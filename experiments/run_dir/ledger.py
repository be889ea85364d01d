"""The budget ledger: a run's cumulative costs, so that curves can be drawn against any of them.

Counts do not depend on the machine. Reference responses (SPO's initial values), offline programs
and samples of other runs and models are charged to the run that uses them, even if their verdicts
come from disk.

**Floating-point operations** of passes over texts follow from a model's shape and the texts'
lengths. A multiplication and an addition are two operations. A weight matrix costs 2 operations per
weight and token forward, 2 backward for the gradient of its input, and 2 more for its own if it is
trained: 2N, and 6N in training (Kaplan et al., arXiv 2001.08361, section 2.1). Attention costs
4 × width per pair of a token and one that it sees, in each layer, and twice that backward. PaLM's
appendix B (Chowdhery et al., arXiv 2204.02311) has the same 12LHQT per token, where every token
sees all T; here a token sees only those before it, itself, and no more than a layer's window.

These are operations of the model, not of the hardware. A pass reads each prompt once and each
response whole, without padding. What an implementation saves (responses that share a prefix) or
computes again (`model.checkpoint_activations`, logits in chunks) changes nothing. Lookups, norms,
activations, softmax and the optimiser are not counted.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.run_dir.progress import VERBS, Activity

# Floating-point operations.


class Text(NamedTuple):
    """Lengths in tokens: of a prompt, and of the responses to it that a pass reads.

    `known`: how many of the prompt's first tokens were read in an earlier pass, whose keys and
    values are at hand.
    """

    prompt: int
    responses: Sequence[int]
    known: int = 0


@dataclass(frozen=True)
class ModelFlops:
    """What decides a model's operations; NaN if the model is of a kind that is not counted.

    - `blocks`, `head`: weights of the blocks' linear layers and of the output layer
    - `trained_blocks`, `trained_head`: how many of them have gradients
    - `attention`: for each layer, heads × head width, and how many tokens it sees (None: all)
    """

    blocks: float
    head: float
    trained_blocks: float = 0
    trained_head: float = 0
    attention: tuple[tuple[int, int | None], ...] = ()

    def forward(self, texts: Iterable[Text]) -> float:
        """Return the operations of reading the texts and predicting the responses' tokens.

        They are also those of generating the responses.
        """
        return sum(
            2 * (self.blocks * _read(text) + self.head * sum(text.responses)) + self._attend(text)
            for text in texts
        )

    def backward(self, texts: Sequence[Text]) -> float:
        """Return the operations of the gradients: of activations, and of the trained weights."""
        of_weights = sum(
            2 * (self.trained_blocks * _read(text) + self.trained_head * sum(text.responses))
            for text in texts
        )
        return self.forward(texts) + of_weights + sum(self._attend(text) for text in texts)

    def _attend(self, text: Text) -> int:
        return sum(4 * width * _pairs(text, window) for width, window in self.attention)


UNKNOWN = ModelFlops(math.nan, math.nan)


def _read(text: Text) -> int:
    """Return how many tokens are read: the prompt once, and those that predict the responses'."""
    return text.prompt - 1 - text.known + sum(text.responses)


def _pairs(text: Text, window: int | None) -> int:
    """Return the pairs of a token that is read and one that it sees in a layer."""
    shared = _seen(text.prompt - 1, window)
    read = shared - _seen(text.known, window)
    return read + sum(
        _seen(text.prompt - 1 + response, window) - shared for response in text.responses
    )


def _seen(length: int, window: int | None) -> int:
    """Return Σ min(t, window) over t = 1 … length."""
    full = length if window is None else min(length, window)
    return full * (full + 1) // 2 + (length - full) * full


# CPU time and memory of processes.

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
        for device in _gpus():
            torch.cuda.reset_peak_memory_stats(device)

    def columns(self) -> dict[str, float]:
        """Return memory/peak_mb of the host, and memory/gpuN_peak_mb of GPUs in use, in MiB."""
        row = {"memory/peak_mb": _host_peak_kb() / 1024}
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
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)


# Costs.

RESUMED = ("seconds", "waited", "judge_cpu_s", "charged_s", "recalled")  # beside the counts
MEASURING = {"sync", "evaluate"}  # phases whose passes check or evaluate and train nothing


@dataclass
class Counts:
    """Budget columns, without evaluation."""

    generated_tokens: int = 0
    prefix_tokens: int = 0  # generated in continuations that estimate values of prefixes
    observation_tokens: int = 0  # that conversations read between their answers
    trained_tokens: int = 0
    reference_tokens: int = 0  # generated by the reference for initial values
    judged_programs: int = 0  # programs that ran; repeats come from the judge's cache
    judged_tests: int = 0
    offline_programs: int = 0  # of those judged: the data set's own
    offline_accepted: int = 0  # of the data set's programs, each time one is learned from …
    offline_rejected: int = 0  # … by the judge's verdict
    infra_errors: int = 0
    checker_faults: int = 0  # of those: a problem's own checker program failed
    reference_programs: int = 0  # of those judged: the reference's, for initial values
    replayed_programs: int = 0  # of those judged: replayed samples of other runs, at first use
    optimiser_steps: int = 0
    weight_syncs: int = 0
    flops: float = 0.0  # of the models (`ModelFlops`); above 2⁶³ in long runs


@dataclass
class Ledger:
    """Counts, wall time by phase, judge CPU time and peak memory."""

    memory: PeakMemory = field(default_factory=PeakMemory)
    model: ModelFlops = UNKNOWN  # that generates responses: without an adapter
    counts: Counts = field(default_factory=Counts)
    judge_cpu_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(VERBS, 0.0))
    # Of these, the time in which the loop waited: less where phases overlap.
    waited: dict[str, float] = field(default_factory=lambda: dict.fromkeys(VERBS, 0.0))
    charged_s: float = 0.0  # of the total: spent in another run
    # by phase: seconds of judging recalled from the verdict cache of other runs
    recalled: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    activity: Activity = field(default_factory=Activity)  # shows the present phase
    _open: list[str] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the wall time of a block to one of VERBS, and not to the enclosing phase."""
        begin = time.monotonic()
        self._open.append(name)
        try:
            with self.activity.phase(VERBS[name]):
                yield
        finally:
            self._open.pop()
            spent = time.monotonic() - begin
            for clocks in (self.seconds, self.waited):
                clocks[name] += spent
                if self._open:
                    clocks[self._open[-1]] -= spent

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Charge the wall time of a block as waiting for work that `work` charges."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.waited[name] += time.monotonic() - begin

    def work(self, name: str, seconds: float) -> None:
        """Charge work that was done in parallel to the loop."""
        self.seconds[name] += seconds

    def charge(self, name: str, seconds: float) -> None:
        """Charge wall time that was spent in another run, to the phase and to the total."""
        self.seconds[name] += seconds
        self.waited[name] += seconds
        self.started -= seconds
        self.charged_s += seconds

    def charge_recalled(self, name: str, seconds: float) -> None:
        """Charge the increase of `seconds`, the recalled judging time of a phase so far."""
        self.charge(name, seconds - self.recalled.get(name, 0.0))
        self.recalled[name] = seconds

    def charge_flops(self, flops: float) -> None:
        """Charge floating-point operations, except those of evaluations and engine checks."""
        if not MEASURING & set(self._open):
            self.counts.flops += flops

    def charge_generation(self, texts: Sequence[Text]) -> None:
        """Charge the operations of generating these responses, each prompt read once."""
        self.charge_flops(self.model.forward(texts))

    def state_dict(self) -> dict[str, Any]:
        """Return the costs so far."""
        state = {name: copy(getattr(self, name)) for name in RESUMED}
        elapsed = time.monotonic() - self.started
        return state | {"counts": asdict(self.counts), "elapsed": elapsed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from these costs; the time in between is not charged."""
        for name in RESUMED:
            setattr(self, name, copy(state[name]))
        self.counts = Counts(**state["counts"])
        self.started = time.monotonic() - state["elapsed"]

    def columns(self) -> dict[str, float]:
        """Return columns of metrics.parquet; time/ and memory/ depend on the machine."""
        row: dict[str, float] = {f"budget/{k}": v for k, v in asdict(self.counts).items()}
        row |= {f"time/{phase}_s": seconds for phase, seconds in self.seconds.items()}
        row |= {f"time/waited_{phase}_s": seconds for phase, seconds in self.waited.items()}
        row["time/judge_cpu_s"] = self.judge_cpu_s
        row["time/charged_s"] = self.charged_s
        row["time/total_s"] = time.monotonic() - self.started
        return row | self.memory.columns()
