"""Large domains: one pass over the log-probabilities, small temporaries, k entries with gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from problems import chi_square, log_probabilities, seeded
from sampling_laws import draw_by
from torch.profiler import ProfilerActivity, profile

import swor
from swor.samplers import _distinct, _race, _tables


def peak_bytes(function: Callable[[], object]) -> int:
    """The most memory that tensors made in a call take at one time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = function()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    now = most = 0
    for event in events:
        now += event.nbytes()
        most = max(most, now)
    assert kept is not None
    return most


@pytest.mark.parametrize("shape", [(2**16 + 3,), (8, 2**13 + 5)])
def test_temporaries_are_a_fraction_of_the_log_probabilities(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs = log_probabilities(*shape, dtype=torch.float32).requires_grad_()
    monkeypatch.setattr(_tables, "LARGEST_TEMPORARY", log_probs.numel() // 16)
    monkeypatch.setattr(_distinct, "LARGEST_TABLE", log_probs.numel() - 1)
    swor.gumbel_top_k(log_probs, 3)
    size = log_probs.numel() * log_probs.element_size()
    assert peak_bytes(lambda: swor.gumbel_top_k(log_probs, 3)) < size / 2
    assert peak_bytes(lambda: log_probs.detach() + 1.0) >= size  # the measure sees a copy


def test_only_what_was_selected_carries_gradient() -> None:
    log_probs = log_probabilities(3, 5000).requires_grad_()
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        sample = swor.gumbel_top_k(log_probs, 4, generator=seeded())
        swor.unordered_set(sample).loss(sample.value.double().sin()).sum().backward()
    made = [t for t in saved if t.data_ptr() != log_probs.data_ptr()]
    assert max(t.untyped_storage().nbytes() for t in made) < 1000  # nothing of the domain is kept
    touched = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, sample.value, True)
    assert torch.equal(log_probs.grad != 0, touched)


@pytest.mark.parametrize("n", [1000, 1003])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_masses_of_blocks_are_the_same_in_chunks(
    n: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs = log_probabilities(*batch, n, scale=5.0)
    log_probs[..., ::8] = -torch.inf
    whole = _tables.block_masses(log_probs, 8)
    assert whole.shape[-1] == -(-n // 8)
    torch.testing.assert_close(whole.logsumexp(-1), log_probs.logsumexp(-1))
    first = log_probs[..., torch.arange(8) * (n // 8)].logsumexp(-1)
    torch.testing.assert_close(whole[..., 0], first)
    monkeypatch.setattr(_tables, "LARGEST_TEMPORARY", 1)
    torch.testing.assert_close(_tables.block_masses(log_probs, 8), whole)


def test_a_last_block_that_is_not_full_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_by("blocks", monkeypatch)
    n, draws = 43, 40_000
    log_probs = log_probabilities(n, scale=0.5)
    sample = swor.gumbel_top_k(log_probs.expand(draws, n), 1, generator=seeded())
    law = dict(enumerate(log_probs.exp().tolist()))
    assert chi_square(Counter(sample.value.flatten().tolist()), law, draws) > 1e-3
    assert (sample.value >= 40).any()


def test_winners_of_a_race_are_ahead_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_race, "LARGEST_WITHOUT_BLOCKS", 1)
    log_probs = log_probabilities(20_000, 50)
    found = _race.top_k_outcomes(log_probs, 3, seeded())
    times = torch.cat([found.g, found.kappa.unsqueeze(-1)], dim=-1)
    assert (times.diff(dim=-1) < 0).all()
    first = torch.exp(-found.g[:, 0])  # the minimum of the race of all: exponential, rate 1
    assert abs(float(first.mean()) - 1.0) < 4.0 / 20_000**0.5
