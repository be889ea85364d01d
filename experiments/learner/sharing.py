"""Which rows of a batch a rank works on, and how what ranks found becomes whole again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from experiments.learner.assemble import micro_batches

if TYPE_CHECKING:
    from experiments.config import TrainConfig
    from experiments.learner.scoring import Tokens
    from experiments.runtimes.alone import Alone


def pieces(tokens: Tokens, config: TrainConfig, ranks: Alone) -> Iterator[Tensor]:
    """Rows of each micro-batch, so few that no rank is idle where it need not be."""
    share = -(-len(tokens.mask) // ranks.size)
    if config.micro_tokens is not None:
        return micro_batches(tokens, share, config.micro_tokens)
    return micro_batches(tokens, min(config.micro_batch, share))


def my_pieces(tokens: Tokens, config: TrainConfig, ranks: Alone) -> Iterator[tuple[Tensor, bool]]:
    """Rows for this rank, and whether they count: see `Alone.share`."""
    return ranks.share(pieces(tokens, config, ranks))


def by_parts(
    of_rows: Callable[[Tensor, bool], Tensor], tokens: Tokens, config: TrainConfig, ranks: Alone
) -> Tensor:
    """What `of_rows` gives for each micro-batch, (rows, time), put together: (batch, time)."""
    found = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
    for rows, mine in my_pieces(tokens, config, ranks):
        part = of_rows(rows, mine)
        if mine:
            found[rows, : part.shape[1]] = part
    return ranks.sum(found)
