"""All samples of a small domain, for proofs about the best of several draws."""

from __future__ import annotations

from dataclasses import replace

import torch

import swor
from swor.diagnostics.all_samples import all_samples


def distinct(log_probs, k):
    """Every set of k distinct outcomes, with gradient, and its probability."""
    return _drawn(log_probs, k, swor.Scheme.WITHOUT_REPLACEMENT)


def independent(log_probs, k):
    """Every multiset of k independent outcomes, with gradient, and its probability."""
    return _drawn(log_probs, k, swor.Scheme.WITH_REPLACEMENT)


def _drawn(log_probs, k, scheme):
    drawn = all_samples(log_probs.detach(), k, scheme, ordered=False, kappa=False)
    sample = replace(drawn.sample, log_p=log_probs[drawn.sample.value])
    return sample, drawn.probability


class Problem:
    """A categorical over n outcomes and a value for each, both with parameters."""

    def __init__(self, n, scale=1.0, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.theta = (scale * torch.randn(n, dtype=torch.float64, generator=g)).requires_grad_()
        self.phi = torch.randn(n, dtype=torch.float64, generator=g).requires_grad_()
        self.parameters = [self.theta, self.phi]

    @property
    def log_probs(self):
        return self.theta.log_softmax(-1)

    def value(self):
        """Depends on both, so that there is a pathwise term for either."""
        return torch.sin(3.0 * self.phi) + torch.tanh(self.theta)

    def exact(self, m, *, largest=True):
        return exact(self.value(), self.log_probs, m, largest=largest)

    def gradient(self, estimate):
        """By all parameters, in one row."""
        return torch.cat(
            torch.autograd.grad(estimate, self.parameters, retain_graph=True, allow_unused=False)
        )


def exact(f, log_probs, m, *, largest=True):
    """The best of m draws as a sum over all outcomes, written by the definition."""
    better = f.unsqueeze(0) > f.unsqueeze(1) if largest else f.unsqueeze(0) < f.unsqueeze(1)
    tie = f.unsqueeze(0) == f.unsqueeze(1)
    p = log_probs.exp()
    worse = (p.unsqueeze(0) * ~(better | tie)).sum(-1)
    at_most = (p.unsqueeze(0) * ~better).sum(-1)
    share = 1.0 / tie.sum(-1).to(f.dtype)  # each of the outcomes that tie counts once in the sum
    return (share * f * (at_most**m - worse**m)).sum()


def covariance(estimates, probability):
    """Of estimates (samples, d), (d, d)."""
    mean = probability @ estimates
    return (probability * (estimates - mean).mT) @ (estimates - mean)
