"""Streaming moments agree with two passes, and their standard errors are right."""

from __future__ import annotations

import pytest
import torch

from swor.diagnostics.streaming import start, update


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
