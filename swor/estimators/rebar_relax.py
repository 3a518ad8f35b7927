"""REBAR and RELAX: REINFORCE with a control variate that depends on the Gumbel noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor._checks import may_validate
from swor.estimators._gumbel_control import Control, draw_noise, estimate_gradient, squared_gradient
from swor.estimators._variables import (
    checked_temperature,
    evaluate,
    evaluate_relaxed,
    loss_with_gradient,
    relaxable,
    tempered_softmax,
    variables_of,
)
from swor.estimators.learning import WithState, check_width, zero_at_first
from swor.samplers.distributions import factorized
from swor.samplers.products import Factorized
from swor.types import Cost


class ControlVariate(nn.Module):
    r"""The control variate of RELAX: a network on the perturbed log-probabilities.

    $$c_\phi(z) \in \mathbb{R}$$

    Its output is 0 at first, so that the untrained estimator is REINFORCE without a baseline. Use it with
    :func:`relax`.

    Args:
        n: the number of variables; 1 if the distribution is not a product.
        c: the number of categories of each variable.
        hidden: the widths of the hidden layers.
        generator: the source of randomness of the initial weights.

    >>> ControlVariate(20, 10)(torch.zeros(64, 1, 20, 10)).shape
    torch.Size([64, 1])

    References:
        | Backpropagation through the Void: Optimizing control variates for black-box gradient
        | estimation (Grathwohl et al., 2018)
        | https://arxiv.org/abs/1711.00123
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
        # Softplus is smooth, because c is differentiated twice.
        self.layers = zero_at_first((n * c, *hidden, 1), nn.Softplus, generator)

    def forward(self, z: Tensor) -> Tensor:
        """Map perturbed log-probabilities (*batch, k, n, c) to (*batch, k)."""
        flat = z.flatten(-2)
        check_width(
            flat,
            self.layers,
            "Make another for distributions of this size, for instance with "
            "ESTIMATORS['relax'].make(dist).",
        )
        out: Tensor = self.layers(flat)
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
    r"""RELAX: REINFORCE with a control variate that is trained to reduce the variance.

    $$g = (f(b) - c(\tilde z)) \nabla \log p(b) + \nabla c(z) - \nabla c(\tilde z)$$

    Here $z = \log p + \text{Gumbel}$, $b = \arg\max z$ and $\tilde z \sim p(z \mid b)$; the value is $f(b)$.
    The estimator is unbiased for any control variate c and uses k evaluations. Use it if f is a black box
    and you can train c along with the model.

    The gradient that reaches the parameters of the control variate is that of $\|g\|^2$, the squared
    gradient with respect to the logits. It equals the gradient of the variance, because the mean of g does
    not depend on c. So one ``backward`` trains the model and the control variate: give the optimiser the
    parameters of both, or use ``ESTIMATORS["relax"].make(dist)``, a module that has them.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        control: the control variate c, such as a :class:`ControlVariate`, from perturbed
            log-probabilities (*batch, k, n, c) to (*batch, k); n = 1 if ``dist`` is not a product.
            Detach anything else that it depends on from the model.
        common_noise: if True, $\tilde z$ has the noise of z; otherwise it has its own.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits, control = torch.zeros(5, 3, requires_grad=True), ControlVariate(1, 3)
    >>> optimizer = torch.optim.Adam([logits, *control.parameters()])
    >>> dist = torch.distributions.Categorical(logits=logits)
    >>> relax(lambda x: x.sqrt(), dist, 1, control=control).mean().backward()
    >>> optimizer.step()

    References:
        | Backpropagation through the Void: Optimizing control variates for black-box gradient
        | estimation (Grathwohl et al., 2018)
        | https://arxiv.org/abs/1711.00123
    """
    variables = variables_of(dist, k)
    if may_validate(variables.log_probs) and bool((variables.log_probs == -torch.inf).any()):
        raise ValueError(
            "the distribution has categories of probability 0; expected finite log-probabilities, "
            "because the control variate cannot process -inf. Use rebar, or another estimator."
        )
    noise = draw_noise(variables, k, common_noise, generator)
    cost = evaluate(variables, f, noise.winners)
    if not torch.is_grad_enabled():
        return cost.mean(-1)
    gradient = estimate_gradient(variables, noise, cost.detach(), control)
    squared = squared_gradient(variables, gradient)
    return loss_with_gradient(variables, cost, gradient) + (squared - squared.detach()).to(
        cost.dtype
    )


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
    r"""REBAR: REINFORCE with the relaxed cost as its control variate.

    $$g = (f(b) - c(\tilde z)) \nabla \log p(b) + \nabla c(z) - \nabla c(\tilde z), \qquad
    c(z) = \eta f(\text{softmax}(z / \tau))$$

    The notation is that of :func:`relax`. The estimator is unbiased for any temperature τ and scale η. It
    uses 2k evaluations, or 3k without common noise. Use it if f is differentiable and the gradient must be
    unbiased.

    If the temperature or the scale requires gradient, the gradient that reaches it is that of $\|g\|^2$,
    so one ``backward`` trains the model and both of them.

    Args:
        f: the cost, from values (*batch, k', *event) to (*batch, k'); it must also accept relaxed values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0, a number or a tensor with one element.
        scale: η, a number or a tensor with one element.
        common_noise: if True, $\tilde z$ has the noise of z; otherwise it has its own.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits = torch.zeros(5, 3, requires_grad=True)
    >>> log_temperature = torch.zeros((), requires_grad=True)
    >>> dist = torch.distributions.OneHotCategorical(logits=logits)
    >>> estimate = rebar(lambda x: x[..., 0] ** 2, dist, 1, temperature=log_temperature.exp())
    >>> estimate.mean().backward()

    References:
        | REBAR: Low-variance, unbiased gradient estimates for discrete latent variable models
        | (Tucker et al., 2017)
        | https://arxiv.org/abs/1703.07370
    """
    variables = relaxable("rebar", dist, k)
    learned = [checked_temperature(temperature), scale]
    noise = draw_noise(variables, k, common_noise, generator)
    cost = evaluate(variables, f, noise.winners)
    if not torch.is_grad_enabled():
        return cost.mean(-1)
    tau, eta = (_per_element(x, variables) for x in learned)

    def control(z: Tensor) -> Tensor:
        y = tempered_softmax(z, tau[..., None, None, None])
        return eta.unsqueeze(-1) * evaluate_relaxed(variables, f, y)

    gradient = estimate_gradient(variables, noise, cost.detach(), control)
    signal = _signal(variables, gradient, learned, [tau, eta])
    return loss_with_gradient(variables, cost, gradient) + signal.to(cost.dtype)


def _per_element(x: float | Tensor, variables: Factorized) -> Tensor:
    """Return a copy of a number for every element of the batch, so that each has its own gradient."""
    x = torch.as_tensor(x, dtype=variables.log_probs.dtype, device=variables.log_probs.device)
    copies = x.detach().reshape(()).expand(variables.batch).clone()
    return copies.requires_grad_(x.requires_grad)


def _signal(
    variables: Factorized, gradient: Tensor, learned: list[float | Tensor], copies: list[Tensor]
) -> Tensor:
    """Return 0, with the gradient of the squared gradient with respect to the learned parameters.

    The derivative is taken here and not in the later backward pass, because it must not reach the
    parameters of f.
    """
    total = torch.zeros_like(copies[0].detach())
    for x, copy in zip(learned, copies, strict=True):
        if isinstance(x, Tensor) and x.requires_grad:
            squared = squared_gradient(variables, gradient).sum()
            (slope,) = torch.autograd.grad(squared, copy, retain_graph=True)
            total = total + slope * (x - x.detach()).reshape(())
    return total


class Rebar(nn.Module):
    """REBAR, :func:`swor.rebar`, with a temperature and a scale that minimise the squared gradient.

    Args:
        temperature: its initial value.
        scale: its initial value.
    """

    def __init__(self, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        temperature = self.log_temperature.exp()
        return rebar(f, dist, k, temperature=temperature, scale=self.scale, generator=generator)


def make_relax(dist: Distribution, generator: torch.Generator | None) -> WithState:
    """Return RELAX with an untrained control variate that fits the size of a distribution."""
    variables = factorized(dist)
    control = ControlVariate(variables.length, variables.categories, generator=generator)
    return WithState(relax, "control", control)


def make_rebar(dist: Distribution, generator: torch.Generator | None) -> Rebar:
    """Return REBAR with its initial temperature and scale."""
    return Rebar()
