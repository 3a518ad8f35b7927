"""Streaming moments agree with two passes, and their standard errors are right."""

from __future__ import annotations

import pytest
import torch

from swor.diagnostics._streaming import start, update


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sizes", [(100,), (1, 99), (50, 3, 47), (2,) * 50])
def test_streams_agree_with_two_passes(sizes: tuple[int, ...]) -> None:
    x = 1e4 + torch.randn(100, 3, dtype=torch.float64, generator=generator())
    stream = start(3)
    for chunk in x.split(sizes):
        stream = update(stream, chunk)
    torch.testing.assert_close(stream.mean, x.mean(0))
    torch.testing.assert_close(stream.variance, x.var(0), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(stream.total, x.var(0).sum(), rtol=1e-9, atol=0.0)


def test_standard_errors_of_variances_are_right() -> None:
    """The errors of many streams have the spread that each of them claims."""
    x = torch.randn(400, 300, 2, dtype=torch.float64, generator=generator()) ** 3
    streams = [update(start(2), chunk) for chunk in x]
    spread = torch.stack([s.variance for s in streams]).std(0)
    claimed = torch.stack([s.variance_error for s in streams]).square().mean(0).sqrt()
    torch.testing.assert_close(claimed, spread, rtol=0.15, atol=0.0)
    spread = torch.stack([s.total for s in streams]).std()
    claimed = torch.stack([s.total_error for s in streams]).square().mean().sqrt()
    torch.testing.assert_close(claimed, spread, rtol=0.15, atol=0.0)


def test_groups_have_the_total_variance_of_their_coordinates() -> None:
    x = torch.randn(50, 5, dtype=torch.float64, generator=generator())
    whole, first, second = start(5, groups=(2, 3)), start(2), start(3)
    for chunk in x.split((1, 30, 19)):
        whole = update(whole, chunk)
        first, second = update(first, chunk[:, :2]), update(second, chunk[:, 2:])
    torch.testing.assert_close(whole.mean, x.mean(0))
    for group, alone in enumerate((first, second)):
        torch.testing.assert_close(whole.variance[group], alone.total)
        torch.testing.assert_close(whole.variance_error[group], alone.total_error)
    plain = update(start(5), x)
    torch.testing.assert_close(whole.total, plain.total)
    torch.testing.assert_close(whole.total_error, plain.total_error)


def test_draws_that_are_the_same_have_no_variance() -> None:
    stream = start(3, groups=(1, 2))
    for _ in range(7):
        stream = update(stream, torch.full((1, 3), 0.1))
    assert stream.variance.tolist() == [0.0, 0.0]
    assert float(stream.total_error) == 0.0
