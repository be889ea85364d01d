"""Where vLLM's start is a collective, no rank enters it before all can, and none waits for ever."""

import pytest
import torch.multiprocessing as mp

from experiments.errors import UserError
from experiments.runtime import torchrun
from experiments.runtime.torchrun import RunEnded
from tests.compose import engine_config, run_config
from tests.experiments.runtime.test_torchrun import free_port, joined

CASES = ("all begin", "the main rank cannot", "another cannot")


def begin(rank, size, port, case, folder):
    ranks = joined(rank, size, port)
    closed = []
    torchrun.open_engines = lambda *given: given[-1].append(lambda: closed.append(1) or 1 / 0)
    config = run_config(None, engine=engine_config(name="vllm"))
    found = "began"
    if ranks.is_rank_zero:
        try:
            if case == "the main rank cannot":
                raise UserError("task.path=/nowhere: no such folder")
            ranks.engines(config, None, None)
        except UserError as error:
            found = str(error)
        finally:
            ranks.stop()
    else:
        try:
            if case == "another cannot":
                ranks.start_error = "no sandbox"
            else:
                ranks.engines(config, None, None)
            ranks.serve()
        except RunEnded:
            found = "ended"
        ranks.leave()
    (folder / str(rank)).write_text(f"{found}; closed {len(closed)}")


@pytest.mark.parametrize("case", CASES)
def test_ranks_meet_before_they_enter(case, tmp_path):
    given = (2, free_port(), case, tmp_path)
    context = mp.start_processes(begin, given, nprocs=2, start_method="fork", join=False)
    assert context.join(timeout=60) or context.join(timeout=60)  # one after the other
    assert [(tmp_path / name).read_text() for name in "01"] == {
        "all begin": ["began; closed 1", "began; closed 1"],
        "the main rank cannot": [
            "task.path=/nowhere: no such folder; closed 0",
            "ended; closed 0",
        ],
        "another cannot": ["rank 1: no sandbox; closed 0", "began; closed 0"],
    }[case]
