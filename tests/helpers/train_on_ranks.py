"""A run of the TRL trainer on several ranks, as `accelerate launch` starts it; each writes what it got.

torchrun --nproc_per_node=2 tests/helpers/train_on_ranks.py FOLDER {data-parallel,fsdp,server} [--resume RUN]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import server_stand_in
import tiny_trainer
import torch
import torch.distributed as dist
from accelerate import DistributedType, PartialState
from torch.distributed.tensor import DTensor

from swor.integrations.trl import UnorderedSetTrainer
from swor.integrations.trl import trainer as swor_trainer

SHARDED = {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
SHARDED |= {"state_dict_type": "SHARDED_STATE_DICT"}


def settings(kind: str) -> dict:
    if kind == "server":
        server_stand_in.install(pytest.MonkeyPatch())
        return {"use_vllm": True, "vllm_mode": "server"}
    return {"fsdp": True, "fsdp_config": dict(SHARDED)} if kind == "fsdp" else {}


def gap(run: UnorderedSetTrainer) -> float:
    """The largest difference of the log-probabilities of draws from those of the policy, after training."""
    run.model.train()
    rank = run.accelerator.process_index
    prompt = {"prompt": ["a b", "c"][rank]}
    run._last_loaded_step = -1
    batch = run._generate_and_score_completions([prompt] * 8)
    return (batch["old_logps"] - run._sample.log_p.flatten()).abs().max().item()


def shard_on_cpu(**given):
    """The settings of a run; Accelerate shards models of ranks with GPUs only, so it is told of some."""
    args = tiny_trainer.RLOOConfig(**given)
    if args.fsdp and args.distributed_state.distributed_type == DistributedType.MULTI_CPU:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    return args


def full(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=["data-parallel", "fsdp", "server"])
    parser.add_argument("--resume")
    given = parser.parse_args()
    longest: list[int] = []
    draw = swor_trainer.sample_completions

    def recorded(*args, **options):
        sample = draw(*args, **options)
        ends = torch.tensor(options["eos_token_id"])
        longest.append(int((~torch.isin(sample.value, ends)).long().cumprod(-1).sum(-1).max()))
        return sample

    swor_trainer.sample_completions = recorded
    run = tiny_trainer.trainer(
        given.folder,
        make_args=shard_on_cpu,
        max_completion_length=6 if given.kind == "server" else 24,
        **settings(given.kind),
    )
    run.train(resume_from_checkpoint=given.resume)
    found = {
        "gap": gap(run) if given.kind == "server" else 0.0,
        "ranks": run.accelerator.num_processes,
        "sharded": any(isinstance(p, DTensor) for p in run.model.parameters()),
        "rewards": [e["swor/reward"] for e in run.state.log_history if "swor/reward" in e],
        "logged": [e["reward"] for e in run.state.log_history if "reward" in e],
        "weights": [full(p).sum().item() for p in run.model.parameters()],
        "longest": longest,
    }
    rank = run.accelerator.process_index
    (given.folder / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()  # threads that are left at exit may abort it


if __name__ == "__main__":
    main()
