"""What may be wrapped around a Hugging Face model: adapters, compilation, data parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Of torch.compile; of data parallelism and of DeepSpeed; of the first FSDP.
INSIDE = ("_orig_mod", "module", "_fsdp_wrapped_module")


def underlying(model: nn.Module) -> PreTrainedModel:
    """The model inside all wrappers, which has the settings and whose ``forward`` names its arguments.

    Only questions go to it. Calls go to the wrapped model, or its adapters and hooks would be left out.
    """
    inside: Any = model
    while True:
        if hasattr(inside, "get_base_model"):
            check_adapter(inside)
            inside = inside.get_base_model()
        elif wrappers := [name for name in INSIDE if name in getattr(inside, "_modules", {})]:
            inside = inside.get_submodule(wrappers[0])
        else:
            base: PreTrainedModel = inside
            return base


def check_adapter(model: Any) -> None:
    """The adapter acts alike on a whole sequence and on one that is extended token by token."""
    config = model.active_peft_config
    if config.is_prompt_learning:
        raise TypeError(
            f"the adapter {model.active_adapter!r} is of type {config.peft_type.value}, which puts "
            "virtual tokens before the input of every call; expected an adapter of the weights, such "
            "as LoRA, with which completions can be extended by a cache."
        )
    if getattr(config, "alora_invocation_tokens", None):
        raise TypeError(
            f"the adapter {model.active_adapter!r} has alora_invocation_tokens, which it looks for in "
            "the input of every call; expected an adapter that is always on, such as plain LoRA, "
            "with which completions can be extended by a cache."
        )
