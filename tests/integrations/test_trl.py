"""The TRL trainer, end to end on a tiny random model."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_trainer import trainer

import swor

METRICS = [
    "mass_covered",
    "effective_sample_size",
    "standard_error",
    "duplicates_avoided",
    "reward",
]


@pytest.mark.filterwarnings("ignore")
def test_training_saves_resumes_and_logs(tmp_path):
    first = trainer(tmp_path / "run")
    first.train()
    logged = [entry for entry in first.state.log_history if "reward" in entry]
    assert len(logged) == 4
    for entry in logged:
        assert all(entry[f"swor/{name}"] is not None for name in METRICS)
        assert 0 < entry["swor/mass_covered"] <= 1
        assert 1 <= entry["swor/effective_sample_size"] <= 4
        assert {"completions/mean_length", "entropy", "frac_reward_zero_std"} <= set(entry)
    sample = first._sample
    assert all(len({tuple(x) for x in group}) == 4 for group in sample.value.tolist())
    again = trainer(tmp_path / "run")
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert again.state.global_step == 4
    state = json.loads((tmp_path / "run" / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["global_step"] == 4
    for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_training_raises_the_reward(tmp_path):
    run = trainer(tmp_path, max_steps=40, save_strategy="no", temperature=0.9, learning_rate=2e-2)
    run.train()
    rewards = [entry["swor/reward"] for entry in run.state.log_history if "swor/reward" in entry]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scale", [False, True])
def test_a_batch_has_the_advantages_of_the_unordered_set_estimator(scale, tmp_path):
    """Before they are scaled to one standard deviation, if they are."""
    run = trainer(tmp_path, beta=0.0, normalize_advantages=scale)
    batch = run._generate_and_score_completions([{"prompt": "a b"}] * 4 + [{"prompt": "c"}] * 4)
    reward, weights = run._rewards.view(2, 4), swor.unordered_set(run._sample)
    expected = 4 * weights.weight * (reward - weights.baseline(reward))
    if (
        scale
    ):  # to the standard deviation of r − b under the model, as TRL has it for independent draws
        above = reward - weights.baseline(reward)
        mean = (weights.weight * above).sum(-1).mean()
        variance = (weights.weight * (above - mean).square()).sum(-1).mean() * 8 / 7
        expected = expected / (variance.sqrt() + 1e-4)
    assert torch.allclose(batch["advantages"], expected.flatten(), rtol=0, atol=1e-5)
    assert expected.abs().max() > 0.01
    assert list(run._logs["advantages"]) == batch["advantages"].tolist()


@pytest.mark.filterwarnings("ignore")
def test_log_probabilities_of_the_sample_are_those_that_trl_differentiates(tmp_path):
    run = trainer(tmp_path, temperature=0.7)
    batch = run._generate_and_score_completions([{"prompt": "a b"}] * 4 + [{"prompt": "c"}] * 4)
    assert torch.allclose(batch["old_logps"], run._sample.log_p.flatten(), atol=1e-4)
