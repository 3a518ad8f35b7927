"""The page "In your trainer": its hooks, called as the frameworks call them.

Each runs against a stand-in whose signature was read, and against the package itself if that can be imported.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import warnings
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import trainer_hooks
from documentation import DOCS, python_blocks
from problems import seeded

import swor

BLOCKS = python_blocks(DOCS / "in_your_trainer.md")
LOG_PROBS = torch.tensor([[-0.5, -0.4], [-0.9, -0.4], [-1.2, -9.0], [-0.1, -2.0], [-0.5, -0.7]])
MASK = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1], [1, 1]])
REWARDS = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 3.0]])
PROMPT = np.array(["a", "b", "a", "a", "b"], dtype=object)  # two prompts, mixed


def expected() -> torch.Tensor:
    """One advantage for every row, each prompt by itself."""
    log_p, reward, out = (LOG_PROBS * MASK).sum(-1), REWARDS.sum(-1), torch.zeros(5)
    for rows in ([0, 2, 3], [1, 4]):
        out[rows] = swor.advantages(log_p[rows], reward[rows])
    return out


@pytest.fixture(params=["stand-in", "package"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes a framework importable, and says whether it is the real one."""

    def install(stand_in: Callable[[], dict[str, ModuleType]], needed: str) -> bool:
        if request.param == "stand-in":
            for name, module in stand_in().items():
                monkeypatch.setitem(sys.modules, name, module)
            return False
        warnings.simplefilter("ignore")  # what a framework warns of is not the matter here
        try:
            importlib.import_module(needed)
        except Exception as error:  # without a GPU, packages fail in many ways
            pytest.skip(f"{needed} cannot be imported: {error!r}")
        return True

    return install


def run(word: str) -> dict[str, Any]:
    """Run the blocks that all examples share, and the one with the given word."""
    names: dict[str, Any] = {"__name__": "in_your_trainer"}
    shared = [block for block in BLOCKS if "def by_prompt" in block]
    chosen = [block for block in BLOCKS if word in block]
    assert len(shared) == len(chosen) == 1
    for block in [BLOCKS[0], *shared, *chosen]:
        exec(compile(block, "in_your_trainer.md", "exec"), names)
    return names


def batch() -> dict[str, torch.Tensor]:
    return {
        "token_level_rewards": REWARDS.clone(),
        "response_mask": MASK.clone(),
        "old_log_probs": LOG_PROBS.clone(),
    }


def test_verl(installed: Any) -> None:
    """Today by the name that gets the batch, and by its own name as PR 7473 would call it."""
    real = installed(trainer_hooks.verl, "verl.trainer.ppo.ray_trainer")
    run("import ADV_ESTIMATOR_REGISTRY")
    trainer = importlib.import_module("verl.trainer.ppo.ray_trainer")
    if real:
        data = trainer.DataProto.from_dict(tensors=batch(), non_tensors={"uid": PROMPT})
    else:
        data = SimpleNamespace(batch=batch(), non_tensor_batch={"uid": PROMPT})
    today = trainer.compute_advantage(data, adv_estimator="gdpo", config=None).batch["advantages"]
    core, rows = importlib.import_module("verl.trainer.ppo.core_algos"), batch()
    then, _ = core.ADV_ESTIMATOR_REGISTRY["unordered_set"](
        token_level_rewards=rows["token_level_rewards"],
        response_mask=rows["response_mask"],
        config=None,
        index=PROMPT,
        non_tensor_batch={"uid": PROMPT},
        batch=rows,
    )
    for found in (today, then):
        torch.testing.assert_close(found, expected().unsqueeze(-1) * MASK)


class Data(dict[str, Any]):
    """A batch of SkyRL: a dictionary of tensors with metadata."""

    metadata: ClassVar[dict[str, Any]] = {"uids": PROMPT.tolist()}


def test_skyrl(installed: Any) -> None:
    """The real trainer needs Ray and a GPU, so what it calls is called in its place."""
    real = installed(trainer_hooks.skyrl, "skyrl.train.trainer")
    trainer = run("class DistinctTrainer")["DistinctTrainer"]
    if real:
        utils = importlib.import_module("skyrl.backends.skyrl_train.utils.ppo_utils")
        found, _ = utils.compute_advantages_and_returns(
            token_level_rewards=REWARDS, response_mask=MASK, index=PROMPT.tolist(),
            adv_estimator="unordered_set", config=None, values=LOG_PROBS,
        )  # fmt: skip
    else:
        given = {"rewards": REWARDS, "response_mask": MASK, "action_log_probs": LOG_PROBS}
        data = trainer().compute_advantages_and_returns(Data(given | {"values": None}))
        found = data["advantages"]
        assert data["values"] is None
    torch.testing.assert_close(found, expected().unsqueeze(-1) * MASK)


def test_rllm(installed: Any) -> None:
    installed(trainer_hooks.rllm, "rllm")
    hook = run("import rllm")["unordered_set_of_groups"]
    groups, rewards, rows = [], [], ([0, 2, 3], [1, 4])
    for members in rows:
        steps = [[SimpleNamespace(logprobs=LOG_PROBS[i][MASK[i] == 1].tolist())] for i in members]
        groups.append(SimpleNamespace(trajectories=[SimpleNamespace(steps=x) for x in steps]))
        rewards.append(REWARDS[members].sum(-1).numpy())
    found, _ = hook(rewards=rewards, algorithm_config=None, traj_groups=groups)
    for members, advantages in zip(rows, found, strict=True):
        np.testing.assert_allclose(advantages, expected()[members].numpy(), rtol=1e-5)


def test_prime_rl(installed: Any) -> None:
    installed(trainer_hooks.prime_rl, "prime_rl.orchestrator.algo")
    known = run("score_group")
    algorithm = known["UnorderedSetAlgorithm"]
    config = run("BaseAlgoConfig")["UnorderedSetAlgoConfig"]
    assert known["ALGORITHM_CLASSES"][config.type] is algorithm
    assert config.action_loss_type == algorithm.action_loss_type  # as build_algorithm wants
    members, episodes = [0, 2, 3], []
    for i in members:
        prompt = trainer_hooks.node([0.0, 0.0], sampled=False)
        answer = trainer_hooks.node(LOG_PROBS[i][MASK[i] == 1].tolist(), sampled=True)
        trace = SimpleNamespace(
            nodes=[prompt, answer], reward=float(REWARDS[i].sum()), has_error=False,
            agent=SimpleNamespace(trainable=True), id=i,
        )  # fmt: skip
        answer.token_ids = list(range(len(answer.mask)))
        episodes.append(SimpleNamespace(traces=[trace]))
    asyncio.run(algorithm.score_group(algorithm.__new__(algorithm), episodes))
    found = torch.tensor([episode.traces[0].nodes[1].advantages[0] for episode in episodes])
    torch.testing.assert_close(found, expected()[members])
    assert all(episode.traces[0].nodes[0].advantages is None for episode in episodes)


def test_a_training_loop_and_a_stream() -> None:
    from tiny_models import PROMPTS, tiny

    from swor.integrations.transformers import completion_log_probs, sample_completions

    torch.manual_seed(0)
    model = tiny("gpt2")
    before = [parameter.clone() for parameter in model.parameters()]
    names = run("def training_step") | {
        "sample_completions": sample_completions,
        "completion_log_probs": completion_log_probs,
    }
    names["training_step"].__globals__.update(names)
    nothing = torch.optim.SGD(model.parameters(), lr=0.0)
    names["training_step"](model, PROMPTS[:1], lambda x: (x == 2).double().mean(-1), nothing)
    assert any(parameter.grad.abs().max() > 0 for parameter in model.parameters())
    model.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    law, source = torch.tensor([0.7, 0.2, 0.1]), seeded()

    def draw(prompt: str) -> tuple[int, float]:
        token = int(torch.multinomial(law, 1, generator=source))
        return token, float(law[token].log())

    completions, sample = run("def distinct_group")["distinct_group"](draw, "a prompt", 2)
    assert len(set(completions)) == 2 and sample.k == 2
