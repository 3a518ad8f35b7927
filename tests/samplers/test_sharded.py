"""Outcomes or batches split over processes: samples and gradients are those of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from several_ranks import (
    LARGE,
    SEED,
    SHAPES,
    SIZES,
    Policy,
    all_logits,
    cost,
    policy_loss,
    records,
    run,
    shares,
)

import swor
from swor.samplers._race import gumbel_like
from swor.samplers.sharded import gumbel_top_k_sharded, shard_generator


@pytest.fixture(scope="module", params=[2, 4])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The number of ranks, and what each found."""
    return request.param, run(request.param, tmp_path_factory.mktemp("ranks"))


def unsharded(logits: torch.Tensor, sizes: tuple[int, ...], k: int) -> swor.Sample:
    """The race of all outcomes in one place, each with the noise that it has on its rank."""
    shards = logits.detach().split(sizes, dim=-1)
    generators = [
        shard_generator(torch.Generator().manual_seed(SEED), r) for r in range(len(sizes))
    ]
    noise = torch.cat([gumbel_like(s, g) for s, g in zip(shards, generators, strict=True)], dim=-1)
    log_probs = logits.log_softmax(-1)
    top, value = (log_probs.detach() + noise).topk(k + 1, dim=-1)
    value = value[..., :k]
    rest = log_probs.detach().scatter(-1, value, -torch.inf).logsumexp(-1)
    return swor.Sample(
        value, log_probs.gather(-1, value), rest, top[..., k], scheme="without_replacement"
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_sample_is_that_of_one_race(found: Any, name: str) -> None:
    ranks, results = found
    logits = all_logits(name, sum(SIZES[ranks])).requires_grad_()
    expected = unsharded(logits, SIZES[ranks], 4)
    for result in results:
        got = result["samples"][name]
        assert torch.equal(got["value"], expected.value)
        for field in ("log_p", "log_rest", "kappa"):
            value = getattr(expected, field).detach()
            torch.testing.assert_close(got[field], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shard_has_its_gradient(found: Any, name: str) -> None:
    ranks, results = found
    logits = all_logits(name, sum(SIZES[ranks])).requires_grad_()
    expected = unsharded(logits, SIZES[ranks], 4)
    swor.unordered_set(expected).loss(cost(expected.value), baseline=0.0).sum().backward()
    together = torch.cat([result["samples"][name]["gradient"] for result in results], dim=-1)
    torch.testing.assert_close(together, logits.grad, rtol=0, atol=1e-12)
    assert torch.equal(together != 0, logits > -torch.inf)  # through the normaliser, to all of them


def test_all_ranks_raise_the_same_error(found: Any) -> None:
    ranks, results = found
    possible = int((all_logits("plain", sum(SIZES[ranks])) > -torch.inf).sum())
    for result in results:
        errors = result["errors"]
        assert f"k is {possible + 1}, but" in errors["support"]
        assert f"only {possible} outcomes of positive probability" in errors["support"]
        assert f"only {possible} outcomes of positive probability" in errors["outcomes"]
        assert "NaN or +inf on rank(s) [0]" in errors["nan"]
        assert "only 0 outcomes" in errors["masked"]
        assert "k is 0" in errors["k"]


def test_large_shards_race_in_blocks(found: Any) -> None:
    ranks, results = found
    logits = torch.randn(ranks * LARGE, generator=torch.Generator().manual_seed(0)).half()
    log_probs = logits.double().log_softmax(-1)
    value = results[0]["large"]["value"]
    assert value.unique().numel() == 5
    rest = log_probs.scatter(-1, value, -torch.inf).logsumexp(-1)
    for result in results:
        drawn = result["large"]
        assert torch.equal(drawn["value"], value)
        assert drawn["log_p"].dtype == torch.half
        torch.testing.assert_close(drawn["log_p"].double(), log_probs[value], rtol=1e-3, atol=0)
        torch.testing.assert_close(drawn["log_rest"].double(), rest, rtol=0, atol=1e-4)


def test_logits_may_be_a_dtensor(found: Any) -> None:
    ranks, results = found
    whole = results[0]["mesh"]["whole"].requires_grad_()
    sizes = tuple(chunk.shape[-1] for chunk in whole.chunk(ranks, dim=-1))
    expected = unsharded(whole, sizes, 2)
    (cost(expected.value) * expected.log_p).sum().backward()
    for result in results:
        assert torch.equal(result["mesh"]["value"], expected.value)
        torch.testing.assert_close(result["mesh"]["log_p"], expected.log_p.detach())
        torch.testing.assert_close(result["mesh"]["gradient"], whole.grad)
        assert result["mesh"]["refused"]


def test_baselines_of_all_processes_are_those_of_the_whole_batch(found: Any) -> None:
    ranks, results = found
    whole = torch.cat(shares(ranks))
    expected = swor.batch_mean(whole).split([len(share) for share in shares(ranks)])
    for rank, share in enumerate(shares(ranks)):
        got = results[rank]["baselines"]
        torch.testing.assert_close(got["together"], expected[rank])
        assert torch.equal(got["alone"], swor.batch_mean(share))
        torch.testing.assert_close(got["average"], whole.mean() + 0.5)
        torch.testing.assert_close(got["average alone"], share.mean() + 0.5)


def test_data_parallel_training_needs_no_options(found: Any) -> None:
    """Each process has its own noise; the gradient is that of the mean loss of all of them."""
    ranks, results = found
    model = Policy()
    losses = [policy_loss(model(part), rank) for rank, part in enumerate(records(ranks))]
    torch.stack(losses).mean().backward()
    for result in results:
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(result["data parallel"][name], parameter.grad)


def test_a_parameter_may_be_used_by_some_processes_only(found: Any) -> None:
    ranks, results = found
    mean = (ranks + 1) / 2
    for result in results:
        everywhere, last, nowhere = result["unused"]["gradients"]
        torch.testing.assert_close(everywhere, torch.full((2,), mean))
        torch.testing.assert_close(last, torch.full((2,), 1 / ranks))
        assert nowhere is None
        assert result["unused"]["means"] == pytest.approx([2 * mean + 2 / ranks])


def test_ranks_with_the_same_seed_have_noise_of_their_own() -> None:
    first, second = (shard_generator(torch.Generator().manual_seed(0), rank) for rank in (0, 1))
    assert not torch.equal(torch.rand(9, generator=first), torch.rand(9, generator=second))
    source = torch.Generator().manual_seed(0)
    once, again = (shard_generator(source, 0) for _ in range(2))
    assert once.initial_seed() != again.initial_seed()


def test_a_process_group_is_needed() -> None:
    with pytest.raises(RuntimeError, match=r"init_process_group, or use swor\.gumbel_top_k"):
        gumbel_top_k_sharded(torch.zeros(3), 1)
