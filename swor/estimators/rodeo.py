r"""RODEO: RLOO with functions of mean zero, which a Stein operator makes from tangents at other samples.

Drawing variable i anew, given the others, leaves the distribution of x as it is. So for any function h,

$$(A h)(x) = \sum_i E_{v \sim \pi_i}[h(x_1, \dots, v, \dots, x_n)] - h(x)$$

has the mean 0, and the same holds for $A(h \nabla \log p)$. Both are exact sums over the categories.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.estimators._tangents import slope_of
from swor.estimators._variables import checked_cost, loss_with_gradient, relaxable
from swor.estimators.learning import zero_at_first
from swor.math._logspace import without_autocast
from swor.samplers.products import Factorized
from swor.types import Cost

Surrogate = Callable[[Tensor, Tensor], Tensor]


class TangentSurrogate(nn.Module):
    r"""The surrogates of RODEO: from the cost of another sample and the change that its tangent predicts.

    $$H\bigl(f(x'), \langle \nabla f(x'), y - x' \rangle\bigr) \in \mathbb{R}^2$$

    Both are 0 at first, so that the untrained estimator is RLOO. Costs are measured in units of their spread
    at earlier steps. Use it with :func:`swor.rodeo`.

    Args:
        hidden: the widths of the hidden layers.
        generator: the source of randomness of the initial weights.

    >>> TangentSurrogate()(torch.zeros(5, 4, 4, 1), torch.zeros(5, 4, 4, 6)).shape
    torch.Size([5, 4, 4, 6, 2])
    """

    mean: Tensor
    variance: Tensor
    steps: Tensor

    def __init__(
        self, hidden: tuple[int, ...] = (32, 32), *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.layers = zero_at_first((2, *hidden, 2), nn.LeakyReLU, generator)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.ones(()))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, cost: Tensor, change: Tensor) -> Tensor:
        """Map costs and changes of broadcastable shapes (…) to two numbers each, (…, 2)."""
        spread = self.variance.clamp(min=1e-12).sqrt()
        seen = torch.broadcast_tensors((cost - self.mean) / spread, change / spread)
        out: Tensor = self.layers(torch.stack(seen, -1).to(self.mean.dtype))
        return spread * out

    @torch.no_grad()
    def remember(self, cost: Tensor, decay: float = 0.99) -> None:
        """Add the costs of a step to the averages, which are plain means at first and moving ones later."""
        if cost.numel() == 0:
            return
        self.steps += 1.0
        rate = (1.0 / self.steps).clamp(min=1.0 - decay)
        cost = cost.to(self.mean)
        self.mean.lerp_(cost.mean(), rate)
        self.variance.lerp_((cost - self.mean).square().mean(), rate)


def rodeo(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    surrogate: Surrogate,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""RODEO: RLOO with learned control variates of mean zero, from the tangents at the other samples.

    $$\frac1k \sum_s \Bigl[\nabla \log p(x_s) \Bigl(f(x_s) - \frac{1}{k - 1} \sum_{s' \ne s} f(x_{s'})
    + (A h_{s'})(x_{s'})\Bigr) + A(\tilde h_s \nabla \log p)(x_s)\Bigr]$$

    Here A is the Stein operator that draws one variable anew, and $h_s(y)$ and $\tilde h_s(y)$ are the means
    of both outputs of the surrogate $H(f(x_{s'}), \langle \nabla f(x_{s'}), y - x_{s'} \rangle)$ over the
    other samples. The estimator is unbiased for any surrogate and uses k evaluations and their backward
    pass; the surrogate is evaluated for k² n c inputs. For k = 1 it is REINFORCE without a baseline. Use it
    if f is differentiable and expensive.

    The gradient that reaches the parameters of the surrogate is that of the squared gradient with respect to
    the logits, so one ``backward`` trains the model and the surrogate, for the next step. Give the optimiser
    the parameters of both, or use ``ESTIMATORS["rodeo"].make(dist)``, a module that has them.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k); it must be differentiable by the values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        surrogate: H, from costs and changes (…) to (…, 2), such as a :class:`swor.TangentSurrogate`.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> rodeo(lambda x: x[..., 0] ** 2, dist, 2, surrogate=TangentSurrogate()).shape
    torch.Size([5])

    References:
        | Gradient Estimation with Discrete Stein Operators (Shi et al., 2022)
        | https://arxiv.org/abs/2202.09497
    """
    variables = relaxable("rodeo", dist, k)
    index = variables.independent(k, generator)
    value = variables.encode(index).requires_grad_()
    cost = checked_cost(variables, f(value), k)
    if not torch.is_grad_enabled():
        return cost.mean(-1)
    x, p = variables.one_hot(index), variables.log_probs.detach().exp().unsqueeze(-3)
    known, score = cost.detach().to(p.dtype), x - p
    if k == 1:
        return loss_with_gradient(variables, cost, known[..., None, None] * score)
    slope = slope_of(variables, cost, value)
    baseline, control = _control_variates(variables, x, known, slope, surrogate)
    advantage = known - _of_others(known + baseline)
    gradient = advantage[..., None, None] * score + control
    squared = gradient.mean(-3).square().sum((-1, -2))
    loss = loss_with_gradient(variables, cost, gradient)
    return loss + (squared - squared.detach()).to(cost.dtype)


def _of_others(number: Tensor) -> Tensor:
    """Return the mean over the other samples, (*batch, k)."""
    return (number.sum(-1, keepdim=True) - number) / (number.shape[-1] - 1)


def _control_variates(
    variables: Factorized, x: Tensor, cost: Tensor, slope: Tensor, surrogate: Surrogate
) -> tuple[Tensor, Tensor]:
    r"""Return $(A h_s)(x_s)$, (*batch, k), and $A(\tilde h_s \nabla \log p)(x_s)$, (*batch, k, n, c)."""
    p, k = variables.log_probs.detach().exp().unsqueeze(-3), cost.shape[-1]
    with without_autocast(x):
        at = x.flatten(-2) @ slope.flatten(-2).mT  # ⟨∇f(s'), s⟩, (*batch, k, k)
    change = at - at.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    present = (x.unsqueeze(-3) * slope.unsqueeze(-4)).sum(-1, keepdim=True)
    nearby = change[..., None, None] + slope.unsqueeze(-4) - present  # (*batch, k, k, n, c)
    other = (1.0 - torch.eye(k, dtype=x.dtype, device=x.device)) / (k - 1)
    seen = cost.unsqueeze(-2)
    h = (other.unsqueeze(-1) * surrogate(seen, change)).sum(-2)
    h_nearby = (other[..., None, None, None] * surrogate(seen[..., None, None], nearby)).sum(-4)
    mean = (p.unsqueeze(-1) * h_nearby).sum(-2)  # (*batch, k, n, 2)
    moved = mean - h.unsqueeze(-2)
    own = p * (h_nearby[..., 1] - mean[..., 1:])
    rest = moved[..., 1].sum(-1, keepdim=True) - moved[..., 1] - h[..., 1:]
    return moved[..., 0].sum(-1), own + rest.unsqueeze(-1) * (x - p)


class Rodeo(nn.Module):
    """RODEO, :func:`swor.rodeo`, with a surrogate that is trained to minimise the squared gradient.

    Args:
        surrogate: of the cost.
    """

    def __init__(self, surrogate: TangentSurrogate) -> None:
        super().__init__()
        self.surrogate = surrogate

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        costs: list[Tensor] = []

        def remembered(x: Tensor) -> Tensor:
            costs.append(f(x))
            return costs[-1]

        loss = rodeo(remembered, dist, k, surrogate=self.surrogate, generator=generator)
        if torch.is_grad_enabled():  # an evaluation teaches nothing
            self.surrogate.remember(costs[-1].detach())
        return loss


def make_rodeo(dist: Distribution, generator: torch.Generator | None) -> Rodeo:
    """Return RODEO with an untrained surrogate."""
    return Rodeo(TangentSurrogate(generator=generator))
