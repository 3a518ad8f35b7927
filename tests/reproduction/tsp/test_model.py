"""The Attention Model and its policy: its size, its decoder against one written plainly, its file."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import swor
from reproduction.harness.errors import UserError
from reproduction.harness.models import keep_model
from reproduction.tsp.model import AttentionModel, load_attention_model, over_batch_and_nodes
from reproduction.tsp.settings import ModelSettings
from swor.samplers.sequence_model import log_prob

SMALL = ModelSettings(width=12, heads=3, layers=2, hidden=10)


class Stepping:
    """A policy without its own ``log_prob``."""

    def __init__(self, policy) -> None:
        self.length, self.end = policy.length, policy.end
        self.start, self.step, self.select = policy.start, policy.step, policy.select


def small_model(seed: int = 0) -> AttentionModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AttentionModel(SMALL).double()


def some_instances(batch: int, nodes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, nodes, 2, generator=generator, dtype=torch.float64)


def all_tours(nodes: int, batch: int) -> Tensor:
    return torch.tensor(list(itertools.permutations(range(nodes)))).expand(batch, -1, -1)


def plain_log_prob(model: AttentionModel, instance: Tensor, tour: list[int]) -> Tensor:
    """One tour of one instance, step by step and head by head, as the model is written in words."""
    h = model.encoder(instance.unsqueeze(0))[0]
    decoder, width, heads = model.decoder, SMALL.width, SMALL.heads
    keys, values, final = (h @ w.T for w in decoder.project_nodes.weight.chunk(3))
    total = torch.zeros((), dtype=h.dtype)
    for t, node in enumerate(tour):
        left = [i for i in range(len(tour)) if i not in tour[:t]]
        first, last = (h[tour[0]], h[tour[t - 1]]) if t else decoder.placeholder
        query = decoder.project_graph(h.mean(0))
        query = query + decoder.project_first(first) + decoder.project_last(last)
        glimpse = []
        for rows in torch.arange(width).chunk(heads):
            scores = keys[left][:, rows] @ query[rows] / math.sqrt(width / heads)
            glimpse.append(scores.softmax(0) @ values[left][:, rows])
        logits = final[left] @ decoder.project_glimpse(torch.cat(glimpse)) / math.sqrt(width)
        log_probs = (SMALL.clip * torch.tanh(logits)).log_softmax(0)
        total = total + log_probs[left.index(node)]
    return total


def test_parameters_are_as_many_as_in_the_paper() -> None:
    assert sum(p.numel() for p in AttentionModel().parameters()) == 708_608


def test_log_prob_is_that_of_a_plain_decoder() -> None:
    model, x = small_model().eval(), some_instances(3, 5)
    tours = torch.stack(
        [torch.randperm(5, generator=torch.Generator().manual_seed(s)) for s in range(6)]
    )
    tours = tours.view(3, 2, 5)
    found = model(x).log_prob(tours)
    for i, j in itertools.product(range(3), range(2)):
        plain = plain_log_prob(model, x[i], tours[i, j].tolist())
        torch.testing.assert_close(found[i, j], plain, rtol=1e-12, atol=1e-12)


def test_probabilities_of_all_tours_sum_to_one() -> None:
    log_p = small_model()(some_instances(2, 4)).log_prob(all_tours(4, 2))
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, dtype=torch.float64))


def test_one_pass_is_stepping_in_value_and_gradient() -> None:
    model, x, tours = small_model(), some_instances(2, 4), all_tours(4, 2)
    policy = model(x)
    weight = torch.linspace(-1, 1, 24, dtype=torch.float64)
    found = []
    for log_p in (policy.log_prob(tours), log_prob(Stepping(policy), tours)):
        parameters = list(model.parameters())
        gradient = torch.autograd.grad((weight * log_p).sum(), parameters, retain_graph=True)
        found.append((log_p, gradient))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)
    assert all(g.abs().sum() > 0 for g in found[0][1][-6:])  # the whole decoder learns


def test_search_finds_every_tour_once() -> None:
    policy = small_model()(some_instances(2, 4))
    sample = swor.stochastic_beam_search(policy, 24, generator=torch.Generator().manual_seed(0))
    assert {tuple(t) for t in sample.value[1].tolist()} == set(itertools.permutations(range(4)))
    assert (sample.log_rest == -torch.inf).all()
    torch.testing.assert_close(sample.log_p, policy.log_prob(sample.value))


@pytest.mark.parametrize("draw", [swor.stochastic_beam_search, swor.ancestral_sample])
def test_samples_are_tours_and_carry_gradient(draw) -> None:
    sample = draw(
        small_model()(some_instances(7, 6)), 5, generator=torch.Generator().manual_seed(0)
    )
    assert (sample.value.sort(-1).values == torch.arange(6)).all()
    assert sample.log_p.requires_grad


def test_greedy_takes_the_likeliest_node_every_time() -> None:
    policy = small_model().eval()(some_instances(4, 5))
    tours = swor.beam_search(policy, 1).value
    state = policy.start()
    for t in range(5):
        log_probs, state = policy.step(state)
        assert (log_probs.squeeze(1).argmax(-1) == tours[:, 0, t]).all()
        state = policy.select(state, torch.zeros(4, 1, dtype=torch.long), tours[..., t])


def test_renaming_the_nodes_renames_the_tours() -> None:
    model, x = small_model().eval(), some_instances(2, 5)
    order = torch.tensor([3, 0, 4, 1, 2])
    tours = all_tours(5, 2)[:, :40]
    torch.testing.assert_close(model(x[:, order]).log_prob(tours), model(x).log_prob(order[tours]))


def test_batch_norm_counts_all_nodes_of_all_instances() -> None:
    h = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    out = over_batch_and_nodes(nn.BatchNorm1d(3), h)
    torch.testing.assert_close(out.mean((0, 1)), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(out.var((0, 1), correction=0), torch.ones(3), atol=1e-3, rtol=0)


def test_two_nodes_have_two_tours() -> None:
    log_p = small_model()(some_instances(3, 2)).log_prob(
        torch.tensor([[0, 1], [1, 0]]).expand(3, 2, 2)
    )
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (torch.rand(3, 1, 2), "at least two nodes"),
        (torch.rand(3, 2), "expected \\(batch, nodes, 2\\)"),
        (torch.rand(3, 4, 3), "expected \\(batch, nodes, 2\\)"),
        (torch.tensor([[[0.0, 1.0]] * 3, [[math.nan, 1.0]] * 3]), "instance 1 .* NaN"),
        (torch.full((1, 3, 2), math.inf), "infinite"),
    ],
)
def test_instances_that_are_none(instances: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionModel(SMALL)(instances)


def test_instances_in_whole_numbers() -> None:
    with pytest.raises(TypeError, match="floating point"):
        AttentionModel(SMALL)(torch.ones(2, 3, 2, dtype=torch.long))


def test_log_prob_of_tours_of_another_size() -> None:
    with pytest.raises(ValueError, match=r"expected \(2, 1, 4\)"):
        small_model()(some_instances(2, 4)).log_prob(torch.zeros(2, 1, 5, dtype=torch.long))


def test_a_file_keeps_the_model_and_its_settings(tmp_path: Path) -> None:
    model, x = AttentionModel(SMALL), some_instances(8, 5).float()
    model(x)  # moves the batch statistics
    keep_model(tmp_path / "model.safetensors", model, SMALL)
    loaded = load_attention_model(tmp_path / "model.safetensors")
    assert loaded.settings == SMALL
    assert not loaded.training
    torch.testing.assert_close(loaded(x).readout, model.eval()(x).readout)


def test_a_file_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    keep_model(path, AttentionModel(SMALL), replace(SMALL, width=24))
    with pytest.raises(UserError, match="those of another model"):
        load_attention_model(path)


def test_the_kept_model_can_be_read() -> None:
    kept = Path(__file__).parents[3] / "results" / "tsp" / "model.safetensors"
    assert load_attention_model(kept).settings == ModelSettings()
