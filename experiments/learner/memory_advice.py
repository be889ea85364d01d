"""Find the least change with which a run fits the memory that it may take: without torch.

First what keeps results but for rounding: smaller micro-batches, checkpointed activations, a
smaller share of the GPU for vLLM, fewer rows generated at once. Then what makes it another run: a
shared critic, an adapter, bfloat16, fewer conversations to a problem in evaluations, a smaller
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from algorithms.base import Needs
from envs.import_by_name import load_function
from experiments.config.composition import CONF, config_of
from experiments.config.resolve_defaults import default_dtype
from experiments.config.schema import ModelConfig, RunConfig
from experiments.learner.memory import GIB, Estimate, estimate, vllm_least
from experiments.learner.shapes import Shape

SHARE_STEP = 0.05  # of a GPU, by which vLLM's share is lowered at a time

ReadShape = Callable[[ModelConfig], Shape | None]  # None: the model's config is not available here
Variant = tuple[list[str], RunConfig, Shape, "MemoryLimit"]


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that a run, or one of its `ranks`, may take: `free` bytes of a GPU's `card`."""

    needs: Needs
    free: int
    on_gpu: bool = False
    card: int = 0
    ranks: int = 0

    def estimate(self, shape: Shape, config: RunConfig) -> Estimate:
        return estimate(shape, config, self.needs, self.on_gpu, self.ranks, self.card)

    def fits_vllm(self, shape: Shape, config: RunConfig) -> bool:
        """Whether vLLM's share is enough for it to start."""
        return config.engine.memory_share * self.card >= vllm_least(shape, config)


def needs_of(config: RunConfig) -> Needs:
    """Return what the run's algorithm needs."""
    return load_function(config.algo.core, "algo.core")(config.algo, config.task.reward.high).needs


def memory_fault(
    config: RunConfig,
    shape: Shape,
    limit: MemoryLimit,
    read_shape: ReadShape,
    *,
    device: str,
    there: str,
) -> str | None:
    """Say what a run needs beyond its limit, and what would fit; None if it fits.

    `there`: how much memory there is, in words.
    """
    needed = limit.estimate(shape, config)
    if needed.total <= limit.free:
        return None
    return (
        f"model.path={config.model.path}: this run needs about {needed.total / GIB:.2f} GiB on "
        f"{device} ({needed.summary()}) and {there}; "
        f"{suggest_change(config, shape, limit, read_shape)}"
    )


def suggest_change(
    config: RunConfig, shape: Shape, limit: MemoryLimit, read_shape: ReadShape
) -> str:
    """Name the least change that fits."""
    for overrides, variant, variant_shape, variant_limit in _variants(
        config, shape, limit, read_shape
    ):
        pieces = smaller_pieces(variant, variant_shape, variant_limit)
        if pieces is not None:
            return f"{' '.join([*overrides, *pieces])} fits"
    return "none of the models in conf/model fits"


def _variants(
    config: RunConfig, shape: Shape, limit: MemoryLimit, read_shape: ReadShape
) -> Iterator[Variant]:
    """Yield (overrides, the run, its model's shape, its limit), the least change first."""
    yield [], config, shape, limit
    if limit.needs.critic == "separate" and hasattr(config.algo, "critic"):
        shared = with_value(config, "algo.critic", "shared")
        yield ["algo.critic=shared"], shared, shape, replace(limit, needs=needs_of(shared))
    if config.model.adapter == "none":
        yield ["model.adapter=lora"], with_value(config, "model.adapter", "lora"), shape, limit
    if config.model.dtype == "float32":  # activations halve, the rest does not
        halved = with_value(config, "model.dtype", "bfloat16")
        yield ["model.dtype=bfloat16"], halved, shape, limit
    samples = config.train.group_size
    if max(config.task.turns, config.eval_turns) > 1 and config.eval.samples > samples:
        # whole groups of conversations keep their keys and values
        yield [f"eval.samples={samples}"], with_value(config, "eval.samples", samples), shape, limit
    for model, smaller in _smaller_models(shape, limit.on_gpu, read_shape):
        yield [f"model={model.name}"], replace(config, model=model), smaller, limit


def _smaller_models(
    shape: Shape, on_gpu: bool, read_shape: ReadShape
) -> list[tuple[ModelConfig, Shape]]:
    """Return the smaller models of conf/model whose config is available here, largest first."""
    models = []
    for file in sorted((CONF / "model").glob("*.yaml")):
        if file.stem in ("_base", "local"):
            continue
        model = config_of([f"model={file.stem}"]).model
        if model.dtype == "auto":
            model = replace(model, dtype=default_dtype("cuda" if on_gpu else "cpu"))
        found = read_shape(model)
        if found is not None and found.parameters < shape.parameters:
            models.append((model, found))
    return sorted(models, key=lambda pair: -pair[1].parameters)


def smaller_pieces(config: RunConfig, shape: Shape, limit: MemoryLimit) -> list[str] | None:
    """Return overrides that make a run fit by doing less at once; None if none do.

    They change memory and time, not results. A run that fits needs none.
    """
    chosen: dict[str, Any] = {}
    while (needed := limit.estimate(shape, config).total) > limit.free:
        for key, value in _steps(config, shape, limit):
            smaller = with_value(config, key, value)
            if limit.estimate(shape, smaller).total < needed:
                config, chosen[key] = smaller, value
                break
        else:
            return None
    return [f"{key}={str(value).lower()}" for key, value in chosen.items()]


def _steps(config: RunConfig, shape: Shape, limit: MemoryLimit) -> Iterator[tuple[str, Any]]:
    """Yield keys with their next smaller values, the one to try first first."""
    name = "micro_batch" if config.train.micro_tokens is None else "micro_tokens"
    for pieces in _halves(getattr(config.train, name)):
        yield f"train.{name}", pieces
    if not (config.model.checkpoint_activations or shape.slides):
        yield "model.checkpoint_activations", True
    share = round(config.engine.memory_share - SHARE_STEP, 2)
    if limit.fits_vllm(shape, with_value(config, "engine.memory_share", share)):
        yield "engine.memory_share", share
    for rows in _halves(config.engine.batch_size):
        yield "engine.batch_size", rows


def _halves(number: int) -> Iterator[int]:
    """Yield a half, a quarter and so on, down to 1: a half may still be more than the run uses."""
    while number > 1:
        number //= 2
        yield number


def with_value(config: RunConfig, key: str, value: Any) -> RunConfig:
    """Return the configuration with one value, e.g. of "train.micro_batch", replaced."""
    group, name = key.split(".")
    return replace(config, **{group: replace(getattr(config, group), **{name: value})})
