"""Nothing waits for a device: no value of a tensor is read on an accelerator, or in compiled code.

Tensors on the device ``meta`` have no values. An operation that reads one, such as ``item`` or ``nonzero``,
raises an error there, so whatever runs on ``meta`` runs on an accelerator without synchronising.
"""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import swor

RULES = (
    swor.unordered_set,
    swor.sum_and_sample,
    swor.raj,
    swor.importance_weighted,
    swor.normalized_importance_weighted,
    swor.risk,
    swor.single_sample,
)
READS = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}


def without_values(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, device="meta", requires_grad=True)


def test_meta_tensors_refuse_what_synchronises():
    for read in (lambda x: x.item(), lambda x: torch.nonzero(x), lambda x: bool(x > 0)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            read(without_values())


@pytest.mark.parametrize("k", [1, 4, 8, 40])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_loss_of_distinct_samples_reads_no_value(rule, k):
    logits = without_values(5, 1000)
    sample = swor.gumbel_top_k(logits.log_softmax(-1), k)
    rule(sample).loss(torch.zeros(5, k, device="meta")).mean().backward()
    assert logits.grad.shape == logits.shape


@pytest.mark.parametrize("shape", [(5, 2, 10), (5, 20, 10)])
def test_a_loss_over_a_product_reads_no_value(shape):
    logits = without_values(*shape)
    sample = swor.stochastic_beam_search(swor.Factorized(logits.log_softmax(-1)), 4)
    swor.unordered_set(sample).loss(torch.zeros(5, 4, device="meta")).mean().backward()
    assert logits.grad.shape == logits.shape


def test_other_samples_and_estimates_read_no_value():
    log_probs, cost = without_values(5, 100).log_softmax(-1), torch.zeros(5, 4, device="meta")
    sample = swor.gumbel_top_k(log_probs, 4)
    independent = swor.with_replacement(without_values(5, 9000).log_softmax(-1), 4)
    estimates = [
        swor.best_of_independent(independent, 2).loss(cost),
        swor.log_success(sample, 2).loss(cost),
        swor.log_success_independent(independent, cost),
        swor.stratified(swor.stratified_sample(log_probs, 4)).loss(cost),
        swor.systematic(swor.systematic_sample(log_probs, 4)).loss(cost),
        swor.raj(swor.gumbel_top_k(log_probs[:, :2], 4, allow_fewer=True)).loss(cost),
        swor.rloo(swor.with_replacement(log_probs, 4)).loss(cost),
        swor.deterministic_sum_and_sample(swor.top_k_and_sample(log_probs, 4)).loss(cost),
        swor.murthy_variance(sample, cost),
        swor.best_of(sample, 2).loss(cost),
        swor.unordered_set(sample).loss(cost, log_p=sample.log_p.detach()),
    ]
    assert {(x.shape, x.device.type) for x in estimates} == {((5,), "meta")}


def reads(function) -> int:
    """The number of operations in a call that read a value of a tensor."""
    function()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        function()
    return sum(event.count for event in profiler.key_averages() if event.key in READS)


def test_a_compiled_loss_reads_no_value():
    logits = torch.randn(8, 300, requires_grad=True)

    def loss(logits):
        sample = swor.gumbel_top_k(logits.log_softmax(-1), 4)
        return swor.unordered_set(sample).loss(sample.value.to(logits.dtype)).mean()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert reads(lambda: compiled(logits).backward()) == 0
    assert (
        reads(lambda: loss(logits).backward()) > 0
    )  # on the CPU, where it is free, and saves time
