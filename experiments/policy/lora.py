"""Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685): W + (α/r)·BA, W frozen, B zero at first.

Policy, critic and reference are module trees of their own that share one set of base weights: the
reference is the base itself, so that the adapter being off is exact and costs nothing, and a critic
is a second adapter and a head. On all linear layers but the head, by peft.

The learning rate is `adapter_rate` = 10 times that of full training: the ratio of the best rates in
Schulman and Thinking Machines, "LoRA without regret" (2025), about the same at every rank under
the scale α/r with α = 32; there rank 1 is already enough for policy gradients, and 32 is common.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from experiments.policy.fsdp import as_shard
from experiments.seeds import seed_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.config.schema import ModelConfig

ADAPTER = "default"  # peft's name for the only one that a module has
OF_PEFT = "base_model.model."  # what peft's files put before the name of a weight


def adapted(base: nn.Module, config: ModelConfig, seed: int, of: str = "policy") -> nn.Module:
    """A module over the weights of `base`, which it freezes, with an adapter of its own.

    A is drawn from `seed` and `of`, so that policy and critic begin differently, and no other
    stream moves. In the base's precision; Float32AdamW has float32 copies where that is lower.
    """
    from peft import LoraConfig, inject_adapter_in_model

    module = _sharing(base, base.parameters())
    settings = LoraConfig(
        r=config.adapter_rank,
        lora_alpha=config.adapter_alpha,
        target_modules="all-linear",
        base_model_name_or_path=config.path,
    )
    devices = [base.device] if base.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_for(seed, "adapter", of))
        module = inject_adapter_in_model(settings, module)
    for parameter in trained(module):
        parameter.data = parameter.data.to(base.dtype)
    module._base = (base, config, seed)  # in a tuple: no submodule
    return module


def _sharing(module: nn.Module, shared: Iterator[nn.Parameter]) -> nn.Module:
    """A copy of the module tree in which these parameters are the same tensors."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in shared})


def is_adapted(module: nn.Module) -> bool:
    return hasattr(module, "_base")


def base_of(module: nn.Module) -> nn.Module:
    """What an adapted module was made of: the same weights without the adapter."""
    return module._base[0]


def beside(module: nn.Module, of: str) -> nn.Module:
    """Another adapted module over the same base."""
    return adapted(*module._base, of)


def rate_of(module: nn.Module) -> float:
    """By what an adapted module's learning rates are multiplied."""
    return module._base[1].adapter_rate if is_adapted(module) else 1.0


def trained(module: nn.Module) -> list[nn.Parameter]:
    """All parameters of an ordinary module, the adapter's of an adapted one."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """The module's state without what is frozen; the tensors are its own."""
    named = module.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in named if not parameter.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def load_trained(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Back to what `trained_state` found. Raises RuntimeError where it is of another module."""
    held = trained_state(module)
    if state.keys() != held.keys():
        raise RuntimeError("the state is of a module with other weights")
    with torch.no_grad():
        for name, value in state.items():
            held[name].copy_(as_shard(value, held[name]))


def with_own_adapter(module: nn.Module) -> nn.Module:
    """A copy whose adapter is its own, and whose base is the module's."""
    frozen = (each for name, each in module.named_parameters() if ".lora_" not in name)
    base, module._base = module._base, None  # a copy of the tuple would copy the base
    try:
        twin = _sharing(module, frozen)
    finally:
        module._base = base
    twin._base = base
    return twin.requires_grad_(False)


def save(module: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """The adapter in peft's own format, which PeftModel.from_pretrained reads.

    `state` is the module's `trained_state`, whole.
    """
    from safetensors.torch import save_file

    tensors = {
        f"{OF_PEFT}{name.replace(f'.{ADAPTER}.', '.')}": value.detach().cpu()
        for name, value in state.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    module.peft_config[ADAPTER].save_pretrained(str(folder))


def load(module: nn.Module, folder: Path) -> None:
    """Take over the adapter that `save` wrote."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    held: dict[str, Any] = load_file(folder / "adapter_model.safetensors")
    state = {name.removeprefix(OF_PEFT): value for name, value in held.items()}
    set_peft_model_state_dict(module, state)
