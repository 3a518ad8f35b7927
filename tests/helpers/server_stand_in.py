"""TRL's server mode without a server: weights are copied where TRL sends them by NCCL."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace

import torch
from engine_stand_in import Engine, SamplingParams

from swor.integrations.trl import _vllm as engines


class Client:
    """TRL's client of a server, which has a model of its own, in the place of the transfer and the server."""

    base_url = "http://stand-in"

    def __init__(self, model, seed=0, end=1):
        self.model, self.transfers = copy.deepcopy(model).eval(), 0
        self.engine = Engine(self._logits, seed=seed, end=end)

    @torch.no_grad()
    def _logits(self, first, others):
        return self.model(torch.tensor([[first, *others]]), use_cache=False).logits[0, -1]

    def update_named_params(self, metadata, parameters):
        for (name, _, shape), (sent, tensor) in zip(metadata, parameters, strict=True):
            assert name == sent and list(tensor.shape) == shape
            self.update_named_param(name, tensor)

    @torch.no_grad()
    def update_named_param(self, name, tensor):  # which older versions of TRL call themselves
        self.model.get_parameter(name).copy_(tensor)

    def reset_prefix_cache(self):
        self.transfers += 1


def install(patch):
    """Let TRL make the stand-in where it connects to a server."""
    from trl.generation.vllm_generation import VLLMGeneration

    def connect(self):
        if self.mode == "server" and self.accelerator.is_main_process:
            self.vllm_client = Client(self.model)

    patch.setattr(VLLMGeneration, "_init_vllm", connect)
    patch.setattr(
        engines, "server_of", lambda client: client.engine
    )  # in the place of a connection
    patch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SamplingParams))
