"""The TRL trainer on two ranks, with the model copied or spread over them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from swor.integrations.trl._vllm import has_servers_of_vllm

SCRIPT = Path(__file__).parents[1] / "helpers" / "train_on_ranks.py"
COMMAND = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]

pytestmark = pytest.mark.slow


def train(folder, kind, *more):
    """What every rank found."""
    done = subprocess.run(
        [*COMMAND, str(SCRIPT), str(folder), kind, *more],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def test_every_rank_draws_its_own_groups_of_a_sharded_model(tmp_path):
    """Rewards and weights are those of data parallelism, and of a run that was interrupted."""
    copies = train(tmp_path / "copies", "data-parallel")
    shards = train(tmp_path / "shards", "fsdp")
    assert all(found["ranks"] == 2 and not found["sharded"] for found in copies)
    assert all(found["ranks"] == 2 and found["sharded"] for found in shards)
    assert copies[0]["longest"] != copies[1]["longest"]  # they end at different steps
    for a, b in zip(copies, shards, strict=True):
        assert a["longest"] == b["longest"]
        assert a["rewards"] == pytest.approx(b["rewards"], abs=1e-6) and len(a["rewards"]) == 4
        assert a["weights"] == pytest.approx(b["weights"], abs=1e-4)
    assert shards[0]["rewards"] == shards[1]["rewards"]
    assert shards[0]["logged"] == pytest.approx(
        shards[0]["rewards"], abs=1e-6
    )  # of all groups, weighted
    checkpoint = str(tmp_path / "shards" / "checkpoint-2")
    again = train(tmp_path / "shards", "fsdp", "--resume", checkpoint)
    for a, b in zip(shards, again, strict=True):
        assert a["rewards"] == pytest.approx(b["rewards"], abs=1e-6)
        assert a["weights"] == pytest.approx(b["weights"], abs=1e-5)
        assert a["longest"][2:] == b["longest"]


def test_one_server_draws_the_groups_of_all_ranks(tmp_path):
    """The main process asks for them, and every rank gets its own."""
    if not has_servers_of_vllm():
        pytest.skip("this version of TRL has servers of its own")
    found = train(tmp_path, "server")
    assert all(x["ranks"] == 2 and len(x["rewards"]) == 4 and x["gap"] < 1e-5 for x in found)
    assert found[0]["rewards"] == found[1]["rewards"]
    assert found[0]["weights"] == found[1]["weights"]
