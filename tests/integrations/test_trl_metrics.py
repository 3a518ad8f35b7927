"""TRL's metrics are those of the model, though completions are distinct; a penalty has the right gradient."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from enumerable_trainer import (
    LENGTHS,
    REWARDS,
    TRUNCATED,
    batch_of,
    enumerable_trainer,
    log_prob_set,
    log_probs,
    sample_of,
    sets,
)
from problems import log_probabilities
from tiny_trainer import trainer

import swor
from swor.integrations.trl._metrics import WeightedMetrics, mean_and_spread, ratio
from swor.types import Sample, Scheme

pytestmark = pytest.mark.filterwarnings("ignore")


def last(run, name, mode="train"):
    return run._metrics[mode][name][-1]


def test_every_process_has_its_own_prompts():
    run = object.__new__(WeightedMetrics)
    run.accelerator = SimpleNamespace(process_index=1)
    run._sample = Sample(torch.zeros(2, 3, 1), torch.zeros(2, 3), scheme="without_replacement")
    assert torch.arange(6)[run._own].tolist() == [2, 3]


def test_a_mean_of_nothing_is_zero():
    assert ratio(torch.zeros(2), torch.zeros(2)) == 0.0


# Over all sets.


@pytest.mark.parametrize("k", [2, 3])
def test_mean_and_spread_are_unbiased(k):
    """Of two prompts: over all pairs of sets, the sum of p(S) p(S') times the variance is the variance."""
    log_probs = log_probabilities(2, 5)
    number = torch.randn(2, 5, dtype=torch.float64)
    total = torch.zeros(2, dtype=torch.float64)
    found = torch.combinations(torch.arange(5), k)
    for first in found:
        for second in found:
            chosen = torch.stack([first, second])
            outside = torch.ones(2, 5, dtype=torch.bool).scatter(1, chosen, False)
            rest = log_probs.masked_fill(~outside, -torch.inf).logsumexp(-1)
            sample = Sample(
                chosen, log_probs.gather(1, chosen), rest, scheme=Scheme.WITHOUT_REPLACEMENT
            )
            mean, spread = mean_and_spread(sample, number.gather(1, chosen))
            total += log_prob_set(sample).sum().exp() * torch.stack([mean, spread.square()])
    p = log_probs.exp() / 2
    mean = (p * number).sum()
    expected = torch.stack([mean, (p * (number - mean).square()).sum()])
    torch.testing.assert_close(total, expected, rtol=0.0, atol=1e-12)


LINEAR = {
    "reward": REWARDS,
    "rewards/reward/mean": REWARDS,
    "completions/mean_length": LENGTHS.double(),
    "completions/clipped_ratio": TRUNCATED.double(),
}


def test_metrics_are_unbiased(tmp_path, monkeypatch):
    """The sum over all sets of p(S) times the metric; both prompts are alike, so one p(S) is that of both."""
    run = enumerable_trainer(tmp_path, 3)
    with torch.no_grad():
        log_p = log_probs(run.model, run)[:1].expand(2, -1)
    total = dict.fromkeys(LINEAR, 0.0)
    plain = 0.0
    for chosen in sets(3):
        sample = sample_of(log_p, chosen)
        batch_of(run, sample, monkeypatch)
        p = log_prob_set(sample)[0].exp().item()
        total = {name: old + p * last(run, name) for name, old in total.items()}
        plain += p * REWARDS[chosen].mean().item()
    for name, number in LINEAR.items():
        expected = (log_p[0].exp() * number).sum().item()
        assert total[name] == pytest.approx(expected, abs=1e-6), name  # TRL has rewards in float32
    assert (
        abs(plain - (log_p[0].exp() * REWARDS).sum().item()) > 0.05
    )  # what TRL logs for such completions


# All completions at once: every metric is exact.


@pytest.mark.parametrize("masked", [False, True])
def test_metrics_of_all_completions_are_exact(masked, tmp_path, monkeypatch):
    run = enumerable_trainer(
        tmp_path, 7, beta=0.3, mask_truncated_completions=masked, temperature=0.8
    )
    with torch.no_grad():
        log_p, log_ref = (log_probs(m, run) for m in (run.model, run.ref_model))
    batch = batch_of(run, sample_of(log_p, torch.arange(7)), monkeypatch)
    p, counts = log_p.exp() / 2, ~TRUNCATED if masked else torch.ones(7, dtype=torch.bool)
    length = (p * LENGTHS * counts).sum()
    mean = (p * REWARDS).sum()
    expected = {
        "reward": mean,
        "reward_std": (p * (REWARDS - mean).square()).sum().sqrt(),
        "completions/mean_length": (p * LENGTHS).sum(),
        "completions/clipped_ratio": (p * TRUNCATED).sum(),
        "completions/mean_terminated_length": (p * LENGTHS * ~TRUNCATED).sum()
        / (p * ~TRUNCATED).sum(),
        "kl": (p * (log_p - log_ref) * counts).sum() / length,
    }
    for name, number in expected.items():
        assert last(run, name) == pytest.approx(number.item(), abs=1e-5), name
    run.compute_loss(run.model, batch)
    assert last(run, "entropy") == pytest.approx(
        entropy(log_p, counts).item() / length.item(), abs=1e-5
    )


def entropy(log_p, counts):
    """The mean over prompts of the sum of the entropies of the next token over the tokens that count."""
    p = log_p.exp()
    first = torch.stack([p[:, 0], p[:, 1:4].sum(-1), p[:, 4:].sum(-1)], -1)
    then = torch.stack([p[:, 1:4], p[:, 4:]], 1) / first[:, 1:, None]
    of_first, of_then = (-(x * x.log()).sum(-1) for x in (first, then))
    after = torch.cat([torch.zeros(2, 1), of_then.repeat_interleave(3, -1)], -1)
    return (p * counts * (of_first[:, None] + after)).sum(-1).mean()


def test_entropy_of_parts_of_groups_is_that_of_the_groups(tmp_path, monkeypatch):
    """TRL cuts the groups into batches at random; the mean over the batches is as if it did not."""
    run = enumerable_trainer(tmp_path, 3)
    with torch.no_grad():
        sample = sample_of(log_probs(run.model, run), torch.tensor([0, 3, 5]))
    batch = batch_of(run, sample, monkeypatch)
    run.compute_loss(run.model, batch)
    whole = last(run, "entropy")
    rows = [slice(0, 2), slice(2, 4), slice(4, 6)]
    for part in rows:
        run.compute_loss(run.model, {name: x[part] for name, x in batch.items()})
    assert sum(run._metrics["train"]["entropy"][-3:]) / 3 == pytest.approx(whole, abs=1e-6)


def test_the_share_of_clipped_completions_is_weighted(tmp_path, monkeypatch):
    run = enumerable_trainer(tmp_path, 7, beta=0.0)
    with torch.no_grad():
        log_p = log_probs(run.model, run)
    batch = batch_of(run, sample_of(log_p, torch.arange(7)), monkeypatch)
    batch["old_logps"] = batch["old_logps"] - 1.0  # every ratio is e
    run.compute_loss(run.model, batch)
    clipped = (log_p.exp() / 2 * ((log_p.exp() * REWARDS).sum(-1, keepdim=True) < REWARDS)).sum()
    assert last(run, "clip_ratio/high_mean") == pytest.approx(clipped.item(), abs=1e-6)
    assert last(run, "clip_ratio/region_mean") == pytest.approx(clipped.item(), abs=1e-6)
    assert last(run, "clip_ratio/low_mean") == 0.0


# The gradient.


@pytest.mark.parametrize("given", [{}, {"best_of": 2}, {"temperature": 0.7}])
def test_the_gradient_is_unbiased_with_a_penalty(given, tmp_path, monkeypatch):
    """Over all sets, the gradient of TRL's loss is that of the objective minus β KL."""
    run = enumerable_trainer(tmp_path, 2, beta=0.5, **given)
    parameters = list(run.model.parameters())
    log_p = log_probs(run.model, run)[:1].expand(2, -1)
    log_ref = log_probs(run.ref_model, run)[:1].detach()
    divergence = (log_p.exp() * (log_p - log_ref)).sum(-1)
    m = given.get("best_of", 1)
    order = REWARDS.argsort()
    below = log_p.exp()[:, order].cumsum(-1)
    best = (below.pow(m).diff(dim=-1, prepend=torch.zeros(2, 1)) * REWARDS[order]).sum(-1)
    expected = torch.autograd.grad(-(best - 0.5 * divergence).mean(), parameters)
    total = [torch.zeros_like(g) for g in expected]
    run_prompts(monkeypatch)
    for chosen in sets(2):
        sample = sample_of(log_p.detach(), chosen)
        loss = run.compute_loss(run.model, batch_of(run, sample, monkeypatch))
        p = log_prob_set(sample)[0].exp()
        for sum_, g in zip(total, torch.autograd.grad(loss, parameters), strict=True):
            sum_ += p * g
    assert max(g.abs().max() for g in expected) > 1e-2
    for a, b in zip(total, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=1e-6)  # TRL scores in float32


def run_prompts(monkeypatch):
    """The first prompt twice, so that one set stands for both."""
    monkeypatch.setattr("enumerable_trainer.PROMPTS", ["a b", "a b"])


# What is logged.


def test_a_number_of_an_evaluation_chooses_the_best_model(tmp_path):
    data = Dataset.from_dict({"prompt": ["a b", "c d"]})
    run = trainer(tmp_path, options={"eval_dataset": data}, per_device_eval_batch_size=8)
    run.evaluate()
    found = run.state.log_history[-1]
    assert found["eval_reward"] == pytest.approx(found["eval_swor/reward"], abs=1e-6)
    expected = swor.unordered_set(run._sample).mean(run._rewards).mean().item()
    assert found["eval_reward"] == pytest.approx(expected, abs=1e-6)
    assert {"eval_entropy", "eval_kl", "eval_reward_std", "eval_completions/mean_length"} <= set(
        found
    )


def test_an_evaluation_with_one_completion_has_the_metrics(tmp_path):
    data = Dataset.from_dict({"prompt": ["a b", "c d"]})
    sizes = {"num_generations_eval": 1, "per_device_eval_batch_size": 2}
    run = trainer(tmp_path, options={"eval_dataset": data}, **sizes)
    run.evaluate()
    found = run.state.log_history[-1]
    names = ["mass_covered", "effective_sample_size", "duplicates_avoided", "reward"]
    assert all(found[f"eval_swor/{name}"] is not None for name in names)
    assert found["eval_swor/mass_covered"] == pytest.approx(run._sample.log_p.exp().mean().item())
    assert found["eval_reward"] == pytest.approx(run._rewards.mean().item())
    assert found["eval_reward_std"] == pytest.approx(run._rewards.std().item(), abs=1e-6)


@pytest.mark.filterwarnings("default")
def test_a_collapsed_policy_is_noticed_once(tmp_path):
    run = trainer(tmp_path, max_steps=2, save_strategy="no")
    with torch.no_grad():
        run.model.lm_head.weight.mul_(1000.0)
    with pytest.warns(
        UserWarning, match=r"4 completions cover .*%.* Lower num_generations"
    ) as found:
        run.train()
    assert sum("Lower num_generations" in str(w.message) for w in found) == 1
