"""The TRL trainer for the best of m completions in the place of their mean."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from problems import log_probabilities, seeded
from tiny_trainer import trainer
from transformers import HfArgumentParser

import swor
from swor.integrations.transformers import completion_log_probs
from swor.integrations.trl import UnorderedSetConfig
from swor.integrations.trl._rewards import Goal, group_advantages

pytestmark = pytest.mark.filterwarnings("ignore")

PROMPTS = [{"prompt": "a b"}] * 4 + [{"prompt": "c d"}] * 4


def best_of_trainer(folder, **given):
    return trainer(folder, make_args=UnorderedSetConfig, **given)


def coefficients(sample, reward, m):
    """c of the gradient Σ c ∇ log p of the best of m, by autograd."""
    log_p = sample.log_p.detach().requires_grad_()
    loss = swor.best_of(replace(sample, log_p=log_p), m).loss(reward)
    return torch.autograd.grad(loss.sum(), log_p)[0]


def log_probs(model, batch, sample):
    """Of the completions of both prompts, with gradient."""
    prompts = batch["prompt_ids"][:: sample.k]
    return completion_log_probs(model, prompts, sample.value, pad_token_id=0, eos_token_id=1)


# The advantages.


@pytest.mark.parametrize("m", [1, 2, 4])
def test_a_penalty_is_outside_of_the_maximum(m):
    sample = swor.gumbel_top_k(log_probabilities(3, 8), 4, generator=seeded())
    reward, penalty = torch.randn(2, 3, 4, generator=seeded(), dtype=torch.float64)
    weights = swor.unordered_set(sample)
    of_penalty = weights.weight * (penalty - weights.baseline(penalty))
    expected = 4 * (coefficients(sample, reward, m) - of_penalty)
    found = group_advantages(sample, reward, penalty, Goal("best_of", m))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    if m == 1:
        mean = group_advantages(sample, reward, penalty, Goal())
        torch.testing.assert_close(found, mean, rtol=0.0, atol=1e-12)


def test_one_completion_for_an_evaluation_has_no_advantage():
    sample = swor.gumbel_top_k(log_probabilities(3, 8), 1, generator=seeded())
    found = group_advantages(sample, torch.ones(3, 1), torch.zeros(3, 1), Goal("best_of", 1))
    assert torch.equal(found, torch.zeros(3, 1, dtype=torch.float64))


def test_the_divergence_from_the_reference_is_taken_off_as_a_mean(tmp_path):
    run = best_of_trainer(tmp_path, best_of=2, beta=0.5)
    with torch.no_grad():
        run.model.lm_head.weight.add_(torch.randn(run.model.lm_head.weight.shape) * 0.1)
    batch = run._generate_and_score_completions(PROMPTS)
    sample, reward = run._sample, run._rewards.view(2, 4)
    with torch.no_grad():
        ratio = log_probs(run.model, batch, sample) - log_probs(run.ref_model, batch, sample)
    weights = swor.unordered_set(sample)
    of_penalty = 0.5 * weights.weight * (ratio - weights.baseline(ratio))
    expected = 4 * (coefficients(sample, reward, 2) - of_penalty)
    assert of_penalty.abs().max() > 1e-2
    assert torch.allclose(batch["advantages"], expected.flatten(), rtol=0, atol=1e-4)


def test_rewards_are_clipped_before_the_best_is_taken(tmp_path):
    run = best_of_trainer(tmp_path, best_of=2, beta=0.0, reward_clip_range=(0.0, 0.3))
    batch = run._generate_and_score_completions(PROMPTS)
    reward = run._rewards.view(2, 4)
    assert reward.max() > 0.3
    expected = 4 * coefficients(run._sample, reward.clamp(0.0, 0.3), 2)
    assert torch.allclose(batch["advantages"], expected.flatten(), rtol=0, atol=1e-5)


# A step, and many.


def starts_with_a(completions, **_):
    return [float(text.split()[:1] == ["a"]) for text in completions]


@pytest.mark.parametrize(
    "objective, m",
    [("best_of", 2), ("best_of", 3), ("best_of", 4), ("log_success", 1), ("log_success", 3)],
)
def test_a_step_has_the_gradient_of_the_objective(objective, m, tmp_path):
    options = {"reward_funcs": starts_with_a} if objective == "log_success" else {}
    run = best_of_trainer(tmp_path, beta=0.0, options=options, **{objective: m})
    run.model.train()
    batch = run._generate_and_score_completions(PROMPTS)
    parameters = list(run.model.parameters())
    found = torch.autograd.grad(run.compute_loss(run.model, batch), parameters)
    sample = replace(run._sample, log_p=log_probs(run.model, batch, run._sample))
    loss = -getattr(swor, objective)(sample, m).loss(run._rewards).mean()
    expected = torch.autograd.grad(loss, parameters)
    assert max(g.abs().max() for g in expected) > 1e-2
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=1e-5)
    logged = run._metrics["train"][f"swor/{objective}"]
    assert logged == pytest.approx([-loss.item()], abs=1e-5)
    if objective == "best_of":
        assert run._metrics["train"]["swor/reward"][0] < logged[0]


def test_training_raises_the_best_of_m(tmp_path):
    run = best_of_trainer(
        tmp_path, best_of=2, beta=0.0, max_steps=20, save_strategy="no", learning_rate=4e-2
    )
    run.train()
    best = [entry["swor/best_of"] for entry in run.state.log_history if "swor/best_of" in entry]
    assert len(best) == 20 and sum(best[-4:]) > sum(best[:4]) + 1.0


def test_an_evaluation_may_use_more_completions(tmp_path):
    data = Dataset.from_dict({"prompt": ["a b", "c d"]})
    sizes = {"num_generations_eval": 8, "per_device_eval_batch_size": 8}
    run = best_of_trainer(tmp_path, best_of=3, options={"eval_dataset": data}, **sizes)
    run.evaluate()
    found = run.state.log_history[-1]
    assert run._sample.k == 8
    assert 0 < found["eval_swor/reward"] < found["eval_swor/best_of"] <= 1


def test_the_mean_is_trained_for_if_nothing_else_is_said(tmp_path):
    found = []
    for make in (trainer, best_of_trainer):
        run = make(tmp_path / make.__name__)
        run.train()
        assert not any("swor/best_of" in entry for entry in run.state.log_history)
        found.append(list(run.model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


# The log of the probability of success.


def test_rewards_of_the_log_of_success_may_be_clipped_to_0_and_1(tmp_path):
    options = {"reward_funcs": lambda completions, **_: [2 * r for r in starts_with_a(completions)]}
    run = best_of_trainer(
        tmp_path, log_success=2, options=options, reward_clip_range=(0.0, 1.0), max_steps=2
    )
    run.train()
    assert [e["swor/log_success"] for e in run.state.log_history if "swor/log_success" in e]


def test_a_reward_that_is_no_success(tmp_path):
    run = best_of_trainer(tmp_path, log_success=2)  # shares of a's
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        run._generate_and_score_completions(PROMPTS)


# Settings.


@pytest.mark.parametrize(
    "given, message",
    [
        ({"best_of": 0}, "best_of is 0; expected at least 1"),
        ({"best_of": 5}, "best_of is 5 and num_generations 4; expected at most 4.*lower best_of"),
        (
            {"best_of": 3, "num_generations_eval": 2},
            "best_of is 3 and num_generations_eval 2; expected at most 2",
        ),
        (
            {"best_of": 2, "normalize_advantages": True},
            "best_of is 2 and normalize_advantages True; expected False",
        ),
        (
            {"log_success": 5},
            "log_success is 5 and num_generations 4; expected at most 4.*lower log_success",
        ),
        (
            {"best_of": 2, "log_success": 2},
            "best_of is 2 and log_success 2; expected one of them at most",
        ),
    ],
)
def test_settings_that_do_not_go_together(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        best_of_trainer(tmp_path, **given)


def test_a_fraction_of_a_completion(tmp_path):
    with pytest.raises(TypeError, match=r"best_of is 1\.5; expected an integer"):
        best_of_trainer(tmp_path, best_of=1.5)


def test_it_is_an_option_on_the_command_line(tmp_path):
    words = ["--output_dir", str(tmp_path), "--bf16", "False", "--use_cpu", "True"]
    parser = HfArgumentParser(UnorderedSetConfig)
    (args,) = parser.parse_args_into_dataclasses([*words, "--best_of", "2"])
    assert args.best_of == 2
    (args,) = parser.parse_args_into_dataclasses([*words, "--log_success", "2"])
    assert args.log_success == 2
    (args,) = parser.parse_args_into_dataclasses(words)
    assert args.best_of is None
