"""Scales of control variates that are learned from the gradients of earlier steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.types import Cost

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


class WithScales(nn.Module):
    """An estimator with its scales, which the module stores.

    Args:
        function: the estimator, which takes the scales as ``scales``.
        count: the number of its scales.
    """

    def __init__(self, function: Callable[..., Tensor], count: int) -> None:
        super().__init__()
        self.function = function
        self.scales = LearnedScales(count)

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        return self.function(f, dist, k, scales=self.scales, generator=generator)


def make_with_scales(
    function: Callable[..., Tensor],
    count: int,
    dist: Distribution,
    generator: torch.Generator | None,
) -> WithScales:
    """Return an estimator with so many scales that have learned nothing yet."""
    return WithScales(function, count)
