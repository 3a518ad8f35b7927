"""What estimators that learn have in common: a module with their state, its parts, and its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.types import Cost


class WithState(nn.Module):
    """An estimator with what it learns or remembers, which the module stores.

    Args:
        function: the estimator.
        name: of the argument with which it takes the state, and of the module's attribute; assign another
            module to the attribute to replace the state.
        state: what it learns or remembers.
    """

    def __init__(self, function: Callable[..., Tensor], name: str, state: nn.Module) -> None:
        super().__init__()
        self.function, self.name = function, name
        self.add_module(name, state)

    def forward(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,).

        A context is passed on to an estimator that reads one.
        """
        given = {self.name: getattr(self, self.name)}
        if context is not None:
            given["context"] = context
        return self.function(f, dist, k, generator=generator, **given)


def zero_at_first(
    widths: Sequence[int], activation: Callable[[], nn.Module], generator: torch.Generator | None
) -> nn.Sequential:
    """Return a network from the first width to the last, whose output is 0 until it is trained."""
    # Without skip_init, a layer would draw from the global generator first; by itself it knows the CPU alone.
    empty = partial(nn.utils.skip_init, nn.Linear, device=torch.get_default_device())
    layers: list[nn.Module] = []
    for before, after in pairwise(widths[:-1]):
        linear = empty(before, after)
        for weights in (linear.weight, linear.bias):
            nn.init.uniform_(weights, -(before**-0.5), before**-0.5, generator=generator)
        layers += [linear, activation()]
    last = empty(widths[-2], widths[-1])
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def check_width(given: Tensor, layers: nn.Sequential, cure: str) -> None:
    """Check that a network of :func:`zero_at_first` was made for as many numbers as it is given."""
    first = layers[0]
    if isinstance(first, nn.Linear) and given.shape[-1:] != (first.in_features,):
        raise ValueError(
            f"the network was given {tuple(given.shape)}; expected (…, {first.in_features}), the width that "
            f"it was made for. {cure}"
        )


LARGEST = 2.0  # of a scale; 1 is the whole of the prediction


class LearnedScales(nn.Module):
    r"""The scales of control variates, from the gradients of earlier steps.

    $$\alpha = -S^{-1} r$$

    The gradient of a step is $A + \sum_i \alpha_i B_i$. Its mean does not depend on α, so this α minimises
    its variance. $S_{ij}$ and $r_i$ are moving averages of the inner products $\langle B_i, B_j \rangle$ and
    $\langle B_i, A \rangle$ over the steps *before* the present one, so α is 0 at the first step. Every
    $\alpha_i$ stays between −2 and 2, because B is nothing but rounding where the gradient has no variance.
    The averages are buffers, so they are saved with the model.

    Args:
        count: the number of control variates.
        decay: of the moving averages, from 0 to below 1.

    >>> scales = LearnedScales(1)
    >>> a, b = torch.tensor([[3.0, 4.0]]), torch.tensor([[[-2.0, 0.0]]])
    >>> scales(a, b).abs(), scales(a, b)
    (tensor([0.]), tensor([1.5000]))
    """

    cross: Tensor
    square: Tensor

    def __init__(self, count: int = 2, decay: float = 0.99) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay is {decay}; expected 0 <= decay < 1. Use 0.99, for instance.")
        self.decay = decay
        self.register_buffer("cross", torch.zeros(count))
        self.register_buffer("square", torch.zeros(count, count))

    @torch.no_grad()
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return α of the earlier steps, (count,), and add the gradients of this step.

        Args:
            a: the gradient without control variates, (*batch, …).
            b: what each of the scales is multiplied by, (count, *batch, …).
        """
        if len(b) != len(self.cross):
            raise ValueError(
                f"the scales are those of {len(self.cross)} control variates; expected {len(b)}. Pass "
                f"scales=LearnedScales({len(b)})."
            )
        norm = self.square.diagonal().sqrt()
        norm = torch.where(norm > 0.0, norm, 1.0)  # the control variates may have different units
        inverse = torch.linalg.pinv(self.square / torch.outer(norm, norm), hermitian=True)
        alpha: Tensor = -(inverse @ (self.cross / norm)) / norm
        flat = b.flatten(1)
        new = (flat @ a.flatten()).to(self.cross), (flat @ flat.mT).to(self.square)
        usable = new[1].isfinite().all() & new[0].isfinite().all()
        for average, number in zip((self.cross, self.square), new, strict=True):
            later = self.decay * average + (1.0 - self.decay) * number
            average.copy_(torch.where(usable, later, average))
        return alpha.clamp(-LARGEST, LARGEST).to(a)


def warm_up(
    estimator: object,
    loss: Callable[[int], Tensor],
    steps: int,
    *,
    learning_rate: float = 1e-3,
) -> int:
    """Train an estimator while the model stays as it is.

    Args:
        estimator: the result of :meth:`swor.Estimator.make`. One without state is not changed.
        loss: from the number of a step to a scalar loss that ``estimator`` computed. Each call also
            updates an estimator that remembers, such as a moving average.
        steps: the number of steps.
        learning_rate: of Adam.

    Returns:
        The number of steps that were taken, which is 0 for an estimator without state.

    >>> import swor
    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> estimator = swor.ESTIMATORS["relax"].make(dist)
    >>> warm_up(estimator, lambda step: estimator(lambda x: x / 3, dist, 2).mean(), 10)
    10

    References:
        | Adam: A Method for Stochastic Optimization (Kingma and Ba, 2015)
        | https://arxiv.org/abs/1412.6980
    """
    if steps < 0:
        raise ValueError(f"the number of warm-up steps is {steps}; expected 0 or more.")
    if not isinstance(estimator, nn.Module):
        return 0
    parameters = list(estimator.parameters())
    optimizer = torch.optim.Adam(parameters, lr=learning_rate) if parameters else None
    for step in range(steps):
        value = loss(step)
        if optimizer is None or not value.requires_grad:
            continue
        gradients = torch.autograd.grad(
            value, parameters, retain_graph=True, materialize_grads=True
        )
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
    return steps
