"""REBAR and RELAX: REINFORCE with a control variate that sees the Gumbel noise."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.checks import may_validate
from swor.estimators.gumbel_control import Control, draw_noise, estimate_gradient, squared_gradient
from swor.estimators.relaxations import checked_temperature, tempered_softmax
from swor.estimators.variables import (
    evaluate,
    evaluate_relaxed,
    relaxable,
    surrogate,
    variables_of,
)
from swor.samplers.factorized import Factorized
from swor.types import Cost


class ControlVariate(nn.Module):
    r"""$c_\phi(z)$: a network on the perturbed log-probabilities, for :func:`relax`.

    Its output starts at 0, so that the untrained estimator is REINFORCE.

    Args:
        n: the number of variables; 1 if the distribution is no product.
        c: the number of categories of each.
        hidden: the widths of the hidden layers.
        generator: of the initial weights.

    >>> ControlVariate(20, 10)(torch.zeros(64, 1, 20, 10)).shape
    torch.Size([64, 1])
    """

    def __init__(
        self,
        n: int,
        c: int,
        hidden: tuple[int, ...] = (200, 200),
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        widths = [n * c, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            linear = nn.Linear(before, after)
            for weights in (linear.weight, linear.bias):
                nn.init.uniform_(weights, -(before**-0.5), before**-0.5, generator=generator)
            layers += [linear, nn.Softplus()]  # smooth: c is differentiated twice
        last = nn.Linear(widths[-1], 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, z: Tensor) -> Tensor:
        """From (*batch, k, n, c) to (*batch, k)."""
        out: Tensor = self.layers(z.flatten(-2))
        return out.squeeze(-1)


def relax(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    control: Control,
    common_noise: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""$g = (f(b) - c(\tilde z)) \nabla \log p(b) + \nabla c(z) - \nabla c(\tilde z)$; the value is $f(b)$.

    RELAX (Grathwohl et al. 2018). Unbiased for any control variate, and f may be a black box. The
    training signal comes with it: the gradient that reaches the parameters of the control variate
    is that of the squared gradient $\|g\|^2$ with respect to the logits, which is that of its variance.
    So one ``backward`` of the result trains everything; give the optimiser the parameters of both.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        control: c, such as a :class:`ControlVariate`, from perturbed log-probabilities
            (*batch, k, n, c), n = 1 where ``dist`` is no product, to (*batch, k). Whatever else it
            depends on must be detached from the model.
        common_noise: take $\tilde z$ from the noise of z; otherwise from noise of its own.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits, control = torch.zeros(5, 3, requires_grad=True), ControlVariate(1, 3)
    >>> optimizer = torch.optim.Adam([logits, *control.parameters()])
    >>> dist = torch.distributions.Categorical(logits=logits)
    >>> relax(lambda x: x.sqrt(), dist, 1, control=control).mean().backward()
    >>> optimizer.step()
    """
    variables = variables_of(dist, k)
    if may_validate(variables.log_probs) and bool((variables.log_probs == -torch.inf).any()):
        raise ValueError(
            "the distribution has categories of probability 0; expected finite log-probabilities, "
            "which the control variate can take. Use rebar, or another estimator."
        )
    draw = draw_noise(variables, k, common_noise, generator)
    cost = evaluate(variables, f, draw.winners)
    if not torch.is_grad_enabled():
        return cost.mean(-1)
    gradient = estimate_gradient(variables, draw, cost.detach(), control)
    squared = squared_gradient(variables, gradient)
    return surrogate(variables, cost, gradient) + (squared - squared.detach()).to(cost.dtype)


def rebar(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    temperature: float | Tensor = 0.5,
    scale: float | Tensor = 1.0,
    common_noise: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""As :func:`relax` with $c(z) = \eta f(\text{softmax}(z / \tau))$, for a differentiable f.

    REBAR (Tucker et al. 2017). Unbiased for any temperature and scale. Uses 2k evaluations, or 3k
    without common noise. Where the temperature or the scale carries gradient, what reaches it is
    the gradient of the squared gradient $\|g\|^2$, so one ``backward`` trains everything.

    Args:
        f: the cost, from values (*batch, k', *event) to (*batch, k'); also takes relaxed values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0, a number or a tensor with one element.
        scale: η, a number or a tensor with one element.
        common_noise: take $\tilde z$ from the noise of z; otherwise from noise of its own.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits = torch.zeros(5, 3, requires_grad=True)
    >>> log_temperature = torch.zeros((), requires_grad=True)
    >>> dist = torch.distributions.OneHotCategorical(logits=logits)
    >>> estimate = rebar(lambda x: x[..., 0] ** 2, dist, 1, temperature=log_temperature.exp())
    >>> estimate.mean().backward()
    """
    variables = relaxable("rebar", dist, k)
    learned = [checked_temperature(temperature), scale]
    draw = draw_noise(variables, k, common_noise, generator)
    cost = evaluate(variables, f, draw.winners)
    if not torch.is_grad_enabled():
        return cost.mean(-1)
    tau, eta = (_per_element(x, variables) for x in learned)

    def control(z: Tensor) -> Tensor:
        y = tempered_softmax(z, tau[..., None, None, None])
        return eta.unsqueeze(-1) * evaluate_relaxed(variables, f, y)

    gradient = estimate_gradient(variables, draw, cost.detach(), control)
    signal = _signal(variables, gradient, learned, [tau, eta])
    return surrogate(variables, cost, gradient) + signal.to(cost.dtype)


def _per_element(x: float | Tensor, variables: Factorized) -> Tensor:
    """A copy of a number for every element of the batch, so that it has a gradient for each."""
    x = torch.as_tensor(x, dtype=variables.log_probs.dtype, device=variables.log_probs.device)
    copies = x.detach().reshape(()).expand(variables.batch).clone()
    return copies.requires_grad_(x.requires_grad)


def _signal(
    variables: Factorized, gradient: Tensor, learned: list[float | Tensor], copies: list[Tensor]
) -> Tensor:
    """Zero, with the gradient of the squared gradient by what is learned.

    Differentiated here and not later, since f has parameters of its own that it must not reach.
    """
    total = torch.zeros_like(copies[0].detach())
    for x, copy in zip(learned, copies, strict=True):
        if isinstance(x, Tensor) and x.requires_grad:
            squared = squared_gradient(variables, gradient).sum()
            (slope,) = torch.autograd.grad(squared, copy, retain_graph=True)
            total = total + slope * (x - x.detach()).reshape(())
    return total
