r"""RLOO and the unordered set estimator with a learned additive control variate.

A network reads a context, or the log-probabilities if there is none, and returns a table with a number for
every category of every variable. Its sum over the variables of a sample predicts the cost, and its mean is
known. It learns from the leave-one-out residuals of earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.estimators.control import additive, controlled
from swor.estimators.learning import WithState, check_width, zero_at_first
from swor.rules.reinforce import rloo
from swor.rules.unordered_set import unordered_set
from swor.samplers.distributions import draw, factorized
from swor.types import Cost, Scheme, Weights

# Log-probabilities below this look alike to the network, and a masked one is a number.
LEAST = -20.0

Network = Callable[[Tensor], Tensor]


class AdditiveTable(nn.Module):
    r"""The network of an additive control variate: from a context to a table.

    $$c(\text{context}) \in \mathbb{R}^{n \times c}$$

    Its output is 0 at first, so that the untrained estimator is that without a control variate. Use it with
    :func:`swor.additive`, or replace it by any module with the same shapes.

    Args:
        n: the number of variables; 1 if the distribution is not a product.
        c: the number of categories of each variable.
        context: the number of elements of a context; by default n c, for log-probabilities.
        hidden: the widths of the hidden layers.
        generator: the source of randomness of the initial weights.

    >>> AdditiveTable(20, 10, context=784)(torch.zeros(64, 784)).shape
    torch.Size([64, 20, 10])
    """

    def __init__(
        self,
        n: int,
        c: int,
        *,
        context: int | None = None,
        hidden: tuple[int, ...] = (512, 256),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape = (n, c)
        width = n * c if context is None else context
        self.layers = zero_at_first((width, *hidden, n * c), nn.LeakyReLU, generator)

    def forward(self, context: Tensor) -> Tensor:
        """Map contexts (*batch, width) to tables (*batch, n, c)."""
        check_width(
            context,
            self.layers,
            "Pass the context for which the network was made, as context=… to an estimator, or make another "
            "network, for this context or, where none is passed, for the n c log-probabilities.",
        )
        table: Tensor = self.layers(context).unflatten(-1, self.shape)
        return table


def unordered_set_additive(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    network: Network,
    context: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The unordered set estimator of f − g, where g is a learned sum over the variables.

    $$\sum_s w_s \nabla \log p_s \bigl((f - g)_s - b_s\bigr) + \sum_i \sum_j c_{ij} \nabla \pi_{ij}, \qquad
    g(x) = \sum_i c_i(x_i)$$

    The weights and the baseline b, of f − g, are those of :func:`swor.unordered_set`, and the table c is that
    of :func:`swor.additive`. The estimator is unbiased for any table and uses k evaluations. Distinct samples
    reduce its variance where samples would coincide, and the control variate where they would not. Use it for
    a product of variables if the cost is more expensive than a small network.

    One ``backward`` trains the model and the network, as :func:`swor.controlled` says: give the optimiser the
    parameters of both, or use ``ESTIMATORS["unordered_set_additive"].make(dist, context=784)``, a module that
    has them.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        network: from contexts to tables (*batch, n, c), such as an :class:`swor.AdditiveTable`.
        context: what the cost depends on besides the sample, such as the image, (*batch, …). By default
            the log-probabilities of the distribution, (*batch, n c). It is detached from the model.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits = torch.zeros(5, 3, requires_grad=True)
    >>> network = AdditiveTable(1, 3, context=7)
    >>> optimizer = torch.optim.Adam([logits, *network.parameters()])
    >>> dist, x = torch.distributions.Categorical(logits=logits), torch.ones(5, 7)
    >>> loss = unordered_set_additive(lambda z: z.sqrt(), dist, 2, network=network, context=x)
    >>> loss.mean().backward()
    >>> optimizer.step()

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043

        | Variational Bayesian Inference with Stochastic Search (Paisley et al., 2012)
        | https://arxiv.org/abs/1206.6430
    """
    drawn = draw(Scheme.WITHOUT_REPLACEMENT, dist, k, generator)
    return _loss(unordered_set(drawn), drawn.value, f, dist, network, context)


def rloo_additive(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    network: Network,
    context: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""RLOO of f − g, where g is a learned sum over the variables.

    $$\frac1k \sum_s \nabla \log p(x_s) \bigl((f - g)_s - b_s\bigr) + \sum_i \sum_j c_{ij} \nabla \pi_{ij},
    \qquad g(x) = \sum_i c_i(x_i)$$

    The baseline b, of f − g, is that of :func:`swor.rloo`, and the table c is that of :func:`swor.additive`.
    The estimator is unbiased for any table and uses k evaluations. Use it like
    :func:`swor.unordered_set_additive`, where samples hardly ever coincide.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        network: from contexts to tables (*batch, n, c), such as an :class:`swor.AdditiveTable`.
        context: what the cost depends on besides the sample, such as the image, (*batch, …). By default
            the log-probabilities of the distribution, (*batch, n c). It is detached from the model.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> network = AdditiveTable(1, 2)
    >>> rloo_additive(torch.ones_like, dist, 2, network=network).shape
    torch.Size([5])

    References:
        | Buy 4 REINFORCE Samples, Get a Baseline for Free! (Kool et al., 2019b)
        | https://openreview.net/forum?id=r1lgTGL5DE

        | Variational Bayesian Inference with Stochastic Search (Paisley et al., 2012)
        | https://arxiv.org/abs/1206.6430
    """
    drawn = draw(Scheme.WITH_REPLACEMENT, dist, k, generator)
    return _loss(rloo(drawn), drawn.value, f, dist, network, context)


def _loss(
    weights: Weights,
    value: Tensor,
    f: Cost,
    dist: Distribution,
    network: Network,
    context: Tensor | None,
) -> Tensor:
    given = _given(dist, context)
    cost = f(value)
    return controlled(weights, cost, additive(dist, value, network(given)))


def _given(dist: Distribution, context: Tensor | None) -> Tensor:
    """Return what the network reads, without gradient, in working precision."""
    variables = factorized(dist).in_working_precision()
    log_probs, axes = variables.log_probs.detach(), len(variables.batch)
    if context is None:
        return log_probs.clamp(min=LEAST).flatten(-2)
    if context.dim() <= axes or context.shape[:axes] != variables.batch:
        raise ValueError(
            f"context has shape {tuple(context.shape)}; expected {(*variables.batch, '…')}, with the batch "
            "of the distribution first. Give one context for every element of the batch."
        )
    return context.detach().to(log_probs.dtype)


def make_additive(
    function: Callable[..., Tensor],
    dist: Distribution,
    generator: torch.Generator | None,
    context: int | None = None,
) -> WithState:
    """Return an estimator with an untrained network that fits the size of a distribution and of a context."""
    variables = factorized(dist)
    n, c = variables.length, variables.categories
    network = AdditiveTable(n, c, context=context, generator=generator)
    return WithState(function, "network", network)
