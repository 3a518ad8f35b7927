"""The estimators of the VAE experiment: any of ESTIMATORS that applies, with what it learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, OneHotCategorical

from swor.baselines import MovingAverage
from swor.estimators.baselined import reinforce_moving_average
from swor.estimators.control_variates import ControlVariate, relax
from swor.estimators.relaxed import gumbel_softmax, straight_through
from swor.experiments.runs.errors import UserError
from swor.experiments.vae.published import SAMPLED_KL
from swor.experiments.vae.settings import METHODS
from swor.types import Cost

RELAXED = {"straight_through": straight_through, "gumbel_softmax": gumbel_softmax}
"""Estimators that learn a temperature."""


class Method(nn.Module):
    r"""An estimator by name, with its state: a control variate, a temperature or an average.

    Args:
        name: a key of ``METHODS``.
        n: number of latent variables.
        c: number of categories of each.
        generator: of the initial weights of what it learns.

    >>> Method("straight_through", 20, 10).log_temperature
    Parameter containing:
    tensor(0., requires_grad=True)
    """

    def __init__(
        self, name: str, n: int, c: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.name, self.entry = name, METHODS[name]
        if name == "relax":
            self.control = ControlVariate(n, c, generator=generator)
        elif name in RELAXED:
            self.log_temperature = nn.Parameter(torch.zeros(()))
        elif name == "reinforce_moving_average":
            self.average = MovingAverage()

    def estimate(self, f: Cost, dist: Distribution, k: int, generator: torch.Generator) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        if self.name == "relax":
            return relax(f, dist, k, control=self.control, generator=generator)
        if self.name in RELAXED:
            temperature = self.log_temperature.exp()
            return RELAXED[self.name](f, dist, k, temperature=temperature, generator=generator)
        if self.name == "reinforce_moving_average":
            return reinforce_moving_average(f, dist, k, average=self.average, generator=generator)
        return self.entry(f, dist, k, generator=generator)

    @property
    def sampled_kl(self) -> bool:
        """Whether the cost includes the sampled KL."""
        return self.name in SAMPLED_KL

    @property
    def value_is_unbiased(self) -> bool:
        """Whether the value of the estimate can be reported as the −ELBO."""
        return (self.entry.unbiased or self.name == "straight_through") and not self.sampled_kl

    def check(self, n: int, c: int, k: int) -> None:
        """Try the estimator once on a uniform distribution, and refuse what it is not defined for."""
        uniform = Independent(OneHotCategorical(logits=torch.zeros(1, n, c)), 1)
        try:
            self.entry(lambda z: z.flatten(-2).sum(-1), uniform, k, generator=torch.Generator())
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.name} does not apply here: {error}") from error
