"""Samples become tensors, and tensors micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algorithms.base import Batch
from experiments.learner.forward import Tokens
from experiments.sample import PromptedProblem, Sample
from experiments.seeds import stream

if TYPE_CHECKING:
    from experiments.config.schema import TrainConfig
    from experiments.learner.forward import Tokens
    from experiments.runtime import RankGroup


def pack(samples: Sequence[Sample], pad: int, device: torch.device) -> Tokens:
    """Each problem's prompt once, and all responses, in the samples' order."""
    rows: dict[str, int] = {}
    prompts: list[PromptedProblem] = []
    for sample in samples:
        if sample.prompt.problem.name not in rows:
            rows[sample.prompt.problem.name] = len(prompts)
            prompts.append(sample.prompt)
    return Tokens.pack(
        [prompt.tokens for prompt in prompts],
        [rows[sample.prompt.problem.name] for sample in samples],
        [sample.tokens for sample in samples],
        pad,
        device,
    )


def micro_batches(tokens: Tokens, size: int, most: int | None = None) -> Iterator[Tensor]:
    """Rows of at most `size` responses: whole prompts, of like length together.

    A prompt is read once in each micro-batch that has responses to it, and padding is paid for:
    so a prompt's responses are not cut apart unless they are too many. With `most`, a micro-batch
    takes no more tokens, prompts and padding included, unless a single response has more.
    """
    prompts, lengths = tokens.prompt_mask.sum(-1).tolist(), tokens.mask.sum(-1).tolist()
    groups: dict[int, list[int]] = {prompt: [] for prompt in range(len(prompts))}
    for row, prompt in enumerate(prompt_of := tokens.prompt_of.tolist()):
        groups[prompt].append(row)

    def fits(rows: list[int]) -> bool:
        if most is None or len(rows) > size:
            return len(rows) <= size
        read = {prompt_of[row] for row in rows}
        widths = max(prompts[p] for p in read), max(lengths[row] for row in rows)
        return len(read) * widths[0] + len(rows) * widths[1] <= most

    part: list[int] = []
    for rows in sorted(
        filter(None, groups.values()), key=lambda rows: max(lengths[row] for row in rows)
    ):
        if part and not fits(part + rows):
            yield torch.tensor(part, device=tokens.mask.device)
            part = []
        if most is not None and not fits(rows):
            rows = sorted(rows, key=lambda row: lengths[row])
        *whole, last = _cut(rows, fits)
        yield from (torch.tensor(rows, device=tokens.mask.device) for rows in whole)
        part += last
    if part:
        yield torch.tensor(part, device=tokens.mask.device)


def _cut(rows: list[int], fits: Callable[[list[int]], bool]) -> Iterator[list[int]]:
    """Parts of these rows, in order, each as long as fits, and one row at the least."""
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or not fits(rows[start : end + 1]):
            yield rows[start:end]
            start = end


def whole_groups(rows: Tensor, group_size: int) -> bool:
    """Whether these rows of a batch, (n,), are groups one after the other, none cut apart."""
    if len(rows) % group_size:
        return False
    groups = rows.view(-1, group_size)
    starts = groups[:, 0].remainder(group_size).eq(0)
    return bool(starts.all() and groups.diff(dim=1).eq(1).all())


def orders(batch: Batch, config: TrainConfig, seed: int, number: int) -> Iterator[Tensor]:
    """The rows of each optimiser step on a run's batch `number`, groups whole: in order where one
    step takes all of them."""
    groups = torch.arange(len(batch.mask), device=batch.mask.device).view(-1, batch.group_size)
    for epoch in range(config.epochs):
        order = list(range(len(groups)))
        if config.minibatches > 1:
            stream(seed, "mini-batches", number, epoch).shuffle(order)
        for part in torch.tensor(order).tensor_split(min(len(groups), config.minibatches)):
            yield groups[part.to(groups.device)].flatten()


def pad_rows(rows: Sequence[Sequence[float]], mask: Tensor) -> Tensor:
    """Ragged rows → (batch, time) as `mask`, zero beyond each row's end."""
    width = mask.shape[1]
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], device=mask.device)


def narrow(batch: Batch, time: int) -> Batch:
    """The batch cut to its first `time` tokens, which hold all of its mask."""
    cut = {
        name: value[:, :time]
        for name, value in vars(batch).items()
        if isinstance(value, Tensor) and value.dim() == 2
    }
    return replace(batch, **cut)


# Which rows of a batch a rank works on, and how what ranks found becomes whole again.


def pieces(tokens: Tokens, config: TrainConfig, ranks: RankGroup) -> Iterator[Tensor]:
    """Rows of each micro-batch, so few that no rank is idle where it need not be."""
    share = -(-len(tokens.mask) // ranks.size)
    if config.micro_tokens is not None:
        return micro_batches(tokens, share, config.micro_tokens)
    return micro_batches(tokens, min(config.micro_batch, share))


def my_pieces(
    tokens: Tokens, config: TrainConfig, ranks: RankGroup
) -> Iterator[tuple[Tensor, bool]]:
    """Rows for this rank, and whether they count: see `Alone.share`."""
    return ranks.share(pieces(tokens, config, ranks))


def by_parts(
    of_rows: Callable[[Tensor, bool], Tensor],
    tokens: Tokens,
    config: TrainConfig,
    ranks: RankGroup,
) -> Tensor:
    """What `of_rows` gives for each micro-batch, (rows, time), put together: (batch, time)."""
    found = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
    for rows, mine in my_pieces(tokens, config, ranks):
        part = of_rows(rows, mine)
        if mine:
            found[rows, : part.shape[1]] = part
    return ranks.sum(found)
