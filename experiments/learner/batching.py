"""From samples to tensors, the rows of each optimiser step, and micro-batches on each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Needs
from algorithms.tensors import correction_weights, masked_mean
from experiments.config.schema import TrainConfig
from experiments.policy.policy import RankGroup
from experiments.sample import Sample, stream


@dataclass(frozen=True)
class Tokens:
    """Prompts and the responses to them, padded; at least one token wide, where all are empty."""

    prompts: Tensor  # (prompts, width) ids, padded on the left
    prompt_mask: Tensor  # (prompts, width) bool
    prompt_of: Tensor  # (batch,) row of `prompts`
    responses: Tensor  # (batch, time) ids, padded on the right
    mask: Tensor  # (batch, time) bool, true on the tokens that are read, including EOS
    # (batch, time) bool, of these the tokens that the policy generated; others are observations.
    # `mask` itself where there are none
    own: Tensor

    @classmethod
    def pack(
        cls,
        prompts: Sequence[Sequence[int]],
        prompt_of: Sequence[int],
        responses: Sequence[Sequence[int]],
        pad: int,
        device: torch.device,
        own: Sequence[Sequence[bool] | None] = (),
    ) -> Tokens:
        """`own`: whether the policy generated each token of each response; None: all of them."""
        width = max(len(prompt) for prompt in prompts)
        time = max(1, *(len(response) for response in responses))
        left = [[pad] * (width - len(p)) + list(p) for p in prompts]
        right = [list(r) + [pad] * (time - len(r)) for r in responses]
        prompt_lengths = torch.tensor([len(p) for p in prompts]).unsqueeze(-1)
        lengths = torch.tensor([len(r) for r in responses]).unsqueeze(-1)
        mask = (torch.arange(time) < lengths).to(device)
        generated = mask
        if not all(row is None or all(row) for row in own):
            generated = mask.clone()
            for number, row in enumerate(own):
                if row is not None:
                    generated[number, : len(row)] &= torch.tensor(row, device=device)
        return cls(
            prompts=torch.tensor(left, device=device),
            prompt_mask=(torch.arange(width) >= width - prompt_lengths).to(device),
            prompt_of=torch.tensor(prompt_of, device=device),
            responses=torch.tensor(right, device=device),
            mask=mask,
            own=generated,
        )

    def to(self, device: torch.device | str) -> Tokens:
        """Return the tokens on that device; themselves if they are there already."""
        if self.mask.device == torch.device(device):
            return self
        moved = {name: value.to(device) for name, value in vars(self).items()}
        return Tokens(**moved | {"own": moved["mask"] if self.own is self.mask else moved["own"]})

    def rows(self, index: Tensor) -> Tokens:
        """Return these rows with only their prompts, and no more padding than they need."""
        used, prompt_of = self.prompt_of[index].unique(return_inverse=True)
        mask = self.mask[index]
        time = max(1, int(mask.sum(-1).max()))
        mask = mask[:, :time]
        prompt_mask = self.prompt_mask[used]
        width = int(prompt_mask.sum(-1).max())
        return Tokens(
            prompts=self.prompts[used, -width:],
            prompt_mask=prompt_mask[:, -width:],
            prompt_of=prompt_of,
            responses=self.responses[index, :time],
            mask=mask,
            own=mask if self.own is self.mask else self.own[index, :time],
        )


def pack(samples: Sequence[Sample], pad: int, device: torch.device) -> Tokens:
    """Pack each problem's prompt once, and all responses in the samples' order."""
    prompts = {sample.prompt.problem.name: sample.prompt.tokens for sample in samples}
    row_of = {name: row for row, name in enumerate(prompts)}
    return Tokens.pack(
        list(prompts.values()),
        [row_of[sample.prompt.problem.name] for sample in samples],
        [sample.tokens for sample in samples],
        pad,
        device,
        [sample.own for sample in samples],
    )


def pad_rows(rows: Sequence[Sequence[float]], mask: Tensor) -> Tensor:
    """Pad ragged rows → (batch, time) as `mask`, zero beyond each row's end."""
    width = mask.shape[1]
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], device=mask.device)


def judged_batch(
    samples: Sequence[Sample], mask: Tensor, group_size: int, config: TrainConfig, batches: int = 0
) -> Batch:
    """Return the batch's rewards and verdicts, and the rows that count, without log-probs.

    `batches`: of the run before this one.
    """
    device = mask.device
    truncated = torch.tensor([sample.truncated for sample in samples], device=device)
    return Batch(
        mask=mask,
        rewards=torch.tensor([sample.reward for sample in samples], device=device),
        keep=~truncated if config.truncation == "mask" else torch.ones_like(truncated),
        online=torch.tensor([not sample.offline for sample in samples], device=device),
        fresh=torch.tensor([sample.fresh for sample in samples], device=device),
        accepted=torch.tensor([sample.accepted for sample in samples], device=device),
        group_size=group_size,
        batches=batches,
    )


def with_step_values(batch: Batch, samples: Sequence[Sample]) -> Batch:
    """Return the batch with the values of its responses' cuts, and their standard errors."""
    values = torch.full(batch.mask.shape, torch.nan)
    errors = values.clone()
    for row, sample in enumerate(samples):
        for cut, mean, error in sample.values:
            values[row, cut], errors[row, cut] = mean, error
    device = batch.mask.device
    return replace(batch, step_values=values.to(device), step_errors=errors.to(device))


def with_behaviour(
    batch: Batch,
    samples: Sequence[Sample],
    tokens: Tokens,
    config: TrainConfig,
    logp: Callable[[Tokens], Tensor],
    ref_logp: Callable[[Tokens], Tensor],
) -> tuple[Batch, dict[str, float]]:
    """Return the batch with its behaviour log-probs, and metrics of their correction.

    With `train.correction` they are the proximal policy's, and terms have importance weights of
    proximal over rollout policy. Samples without log-probs get 0, or, by `train.missing_logprobs`,
    those of the policy or the reference, which `logp` and `ref_logp` compute.
    """
    mask, kind = tokens.own, config.correction
    rollout = pad_rows([sample.logps or () for sample in samples], mask)
    missing = torch.tensor([[sample.logps is None] for sample in samples], device=mask.device)
    if missing.any() and config.missing_logprobs != "reject":
        computed = logp(tokens) if config.missing_logprobs == "recomputed" else ref_logp(tokens)
        rollout, missing = torch.where(missing, computed, rollout), missing & False
    if kind == "none":
        return replace(batch, rollout_logp=rollout, behaviour_logp=rollout), {}
    proximal = logp(tokens)
    weights, cut = correction_weights(proximal, rollout, mask, kind, *config.correction_bounds)
    corrected, weights = mask & ~missing, weights.masked_fill(missing, 1.0)
    batch = replace(batch, rollout_logp=rollout, behaviour_logp=proximal, correction=weights)
    return batch, {
        "correction/weight_mean": float(masked_mean(weights, corrected)),
        "correction/cut_share": float(masked_mean(cut.float(), corrected)),
    }


def with_current_weights(batch: Batch, logp: Tensor, config: TrainConfig) -> Batch:
    """Return the rows with importance weights of the policy at this step, detached.

    `logp`: the policy's in training (batch, time). Rows without rollout log-probs keep weight 1,
    unless they have a substitute, which then counts as their rollout policy.
    """
    weights, _ = correction_weights(
        logp.detach(), batch.rollout_logp, batch.mask, config.correction, *config.correction_bounds
    )
    known = batch.mask
    if config.missing_logprobs == "reject":  # else `rollout_logp` has a substitute for them
        known = known & batch.online.unsqueeze(-1)
    return replace(batch, correction=weights.masked_fill(~known, 1.0))


def micro_batch(batch: Batch, rows: Tensor, time: int) -> Batch:
    """Return these rows, cut to their first `time` tokens, which hold all of their mask."""
    part = batch.rows(rows)
    trimmed: dict[str, Any] = {
        name: value[:, :time]
        for name, value in vars(part).items()
        if isinstance(value, Tensor) and value.dim() == 2
    }
    return replace(part, **trimmed)


def step_rows(batch: Batch, config: TrainConfig, seed: int, number: int) -> Iterator[Tensor]:
    """Yield the rows of each optimiser step on a run's batch `number`, groups whole.

    They are in order if one step takes all of them, else shuffled anew for each epoch.
    """
    groups = torch.arange(len(batch.mask), device=batch.mask.device).view(-1, batch.group_size)
    for epoch in range(config.epochs):
        order = list(range(len(groups)))
        if config.minibatches > 1:
            stream(seed, "mini-batches", number, epoch).shuffle(order)
        for part in torch.tensor(order).tensor_split(min(len(groups), config.minibatches)):
            yield groups[part.to(groups.device)].flatten()


def are_whole_groups(rows: Tensor, group_size: int) -> bool:
    """Whether these rows of a batch, (n,), are groups one after the other, none cut apart."""
    if len(rows) % group_size:
        return False
    groups = rows.view(-1, group_size)
    starts = groups[:, 0].remainder(group_size).eq(0)
    return bool(starts.all() and groups.diff(dim=1).eq(1).all())


# Micro-batches: rows that are read in one pass.


def micro_batches(tokens: Tokens, size: int, max_tokens: int | None = None) -> Iterator[Tensor]:
    """Yield rows of at most `size` responses: whole prompts, those of similar length together.

    A prompt is read once in each micro-batch with responses to it, and padding costs compute. So a
    prompt's responses are split only if they are too many. With `max_tokens`, prompts and padding
    included, a micro-batch takes no more tokens, unless a single response has more.
    """
    prompts, lengths = tokens.prompt_mask.sum(-1).tolist(), tokens.mask.sum(-1).tolist()
    groups: dict[int, list[int]] = {prompt: [] for prompt in range(len(prompts))}
    for row, prompt in enumerate(prompt_of := tokens.prompt_of.tolist()):
        groups[prompt].append(row)

    def fits(rows: list[int]) -> bool:
        if max_tokens is None or len(rows) > size:
            return len(rows) <= size
        read = {prompt_of[row] for row in rows}
        widths = max(prompts[p] for p in read), max(lengths[row] for row in rows)
        return len(read) * widths[0] + len(rows) * widths[1] <= max_tokens

    device, open_rows = tokens.mask.device, list[int]()
    for rows in sorted(
        filter(None, groups.values()), key=lambda rows: max(lengths[row] for row in rows)
    ):
        if open_rows and not fits(open_rows + rows):
            yield torch.tensor(open_rows, device=device)
            open_rows = []
        if max_tokens is not None and not fits(rows):
            rows = sorted(rows, key=lambda row: lengths[row])
        for row in rows:
            if open_rows and not fits([*open_rows, row]):
                yield torch.tensor(open_rows, device=device)
                open_rows = []
            open_rows.append(row)
    if open_rows:
        yield torch.tensor(open_rows, device=device)


def plan_micro_batches(tokens: Tokens, config: TrainConfig, ranks: RankGroup) -> Iterator[Tensor]:
    """Yield the rows of each micro-batch, small enough that every rank has work if possible."""
    share = -(-len(tokens.mask) // ranks.size)
    if config.micro_tokens is not None:
        return micro_batches(tokens, share, config.micro_tokens)
    return micro_batches(tokens, min(config.micro_batch, share))


def can_prepare_in_step(
    needs: Needs, tokens: Tokens, batch: Batch, config: TrainConfig, ranks: RankGroup
) -> bool:
    """Whether a step can prepare each micro-batch from the forward pass that it learns from.

    That pass gives the policy's log-probs before the step. If groups are whole and independent,
    a pass without gradient would compute the same bits again.
    """
    if not (needs.by_group and bool(batch.keep.all())):
        return False
    parts = plan_micro_batches(tokens, config, ranks)
    return all(are_whole_groups(rows, batch.group_size) for rows in parts)


def map_micro_batches(
    function: Callable[[Tensor, bool], Tensor],
    tokens: Tokens,
    config: TrainConfig,
    ranks: RankGroup,
) -> Tensor:
    """Apply `function` to each micro-batch's rows → (rows, time), and join all: (batch, time).

    Its second argument is whether the rows count on this rank.
    """
    joined = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
    for rows, counts in ranks.share(plan_micro_batches(tokens, config, ranks)):
        part = function(rows, counts)
        if counts:
            joined[rows, : part.shape[1]] = part
    return ranks.sum(joined)
