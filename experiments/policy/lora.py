"""Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685): W + (α/r)·BA, W frozen, B zero at first.

Policy, critic and reference are separate module trees that share one set of base weights. The
reference is the base itself, so switching the adapter off is exact and costs nothing. A critic is a
second adapter and a head. Adapters are on all linear layers but the head, by peft.

The learning rate is `adapter_rate` = 10 times that of full training: the ratio of the best rates in
Schulman and Thinking Machines, "LoRA without regret" (2025), about the same at every rank under
the scale α/r with α = 32; there rank 1 is already enough for policy gradients, and 32 is common.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from experiments.config.schema import ModelConfig
from experiments.policy.policy import Adapter, Policy, as_shard
from experiments.sample import seed_for

ADAPTER = "default"  # peft's name for a module's only adapter
OF_PEFT = "base_model.model."  # the prefix of a weight's name in peft's files


def adapted(base: Policy, config: ModelConfig, seed: int, stream: str = "policy") -> Policy:
    """Return a policy over the weights of `base`, which it freezes, with an adapter of its own.

    A is drawn from `seed` and `stream`: policy and critic begin differently, and no other random
    stream moves. In the base's precision; Float32AdamW has float32 copies where that is lower.
    """
    from peft import LoraConfig, inject_adapter_in_model

    model = copy.deepcopy(base.model, {id(weight): weight for weight in base.model.parameters()})
    settings = LoraConfig(
        r=config.adapter_rank,
        lora_alpha=config.adapter_alpha,  # type: ignore[arg-type]  # peft takes any number
        target_modules="all-linear",
        base_model_name_or_path=config.path,
    )
    devices = [base.device] if base.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_for(seed, "adapter", stream))
        model = cast("PreTrainedModel", inject_adapter_in_model(settings, model))
    for parameter in trained(model):
        parameter.data = parameter.data.to(base.model.dtype)
    return replace(base.with_model(model), adapter=Adapter(base, config, seed))


def rate_factor(policy: Policy) -> float:
    """Return the factor on the learning rates of an adapter; 1 without one."""
    return policy.adapter.config.adapter_rate if policy.adapter else 1.0


def trained(module: nn.Module) -> list[nn.Parameter]:
    """Return all parameters of an ordinary module, the adapter's of an adapted one."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's state without frozen parameters; the tensors are not copied."""
    named = module.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in named if not parameter.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def load_trained(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Restore what `trained_state` returned. Raises RuntimeError for another module's state."""
    own = trained_state(module)
    if state.keys() != own.keys():
        raise RuntimeError("the state is of a module with other weights")
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(as_shard(value, own[name]))


def save(policy: Policy, plain: Policy, state: dict[str, Tensor], folder: Path) -> None:
    """Save what training has changed: all weights as transformers has them, or the adapter.

    An adapter is in peft's own format, which PeftModel.from_pretrained reads. `plain` holds the
    trained weights unsharded; `state` is the whole `trained_state` of `policy`'s model.
    """
    if policy.adapter is None:
        plain.model.save_pretrained(folder)
        return
    tensors = {
        f"{OF_PEFT}{name.replace(f'.{ADAPTER}.', '.')}": value.detach().cpu()
        for name, value in state.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    settings: Any = policy.model.peft_config
    settings[ADAPTER].save_pretrained(str(folder))


def load(policy: Policy, folder: Path) -> None:
    """Load the adapter that `save` saved."""
    from peft import set_peft_model_state_dict

    tensors = load_file(folder / "adapter_model.safetensors")
    state = {name.removeprefix(OF_PEFT): value for name, value in tensors.items()}
    set_peft_model_state_dict(policy.model, state)
