"""The estimators of the VAE experiment: any of ESTIMATORS that applies, with what it learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, OneHotCategorical

from swor.estimators.registry import ESTIMATORS
from swor.experiments.errors import UserError
from swor.types import Cost

LEARNING_RATES = {"straight_through": 1e-4, "gumbel_softmax": 1e-4, "relax": 1e-4, "arsm": 3e-4}
"""The paper's learning rates; 1e-3 for all others."""

OWN_SAMPLED_KL = ("arsm",)
"""Estimators whose cost includes the sampled KL, Kool et al. (2020), equation (61)."""

OTHER_OBJECTIVE = ("vimco",)

METHODS = {name: entry for name, entry in ESTIMATORS.items() if name not in OTHER_OBJECTIVE}


def check_name(name: str) -> None:
    """The name is that of an estimator."""
    if name not in METHODS:
        raise UserError(
            f"there is no estimator {name!r}; expected one of {', '.join(sorted(METHODS))}."
        )


class Method(nn.Module):
    r"""An estimator by name, with its state.

    Args:
        name: a key of ``METHODS``.
        n: number of latent variables.
        c: number of categories of each.
        generator: of the initial weights of what it learns.
    """

    def __init__(
        self, name: str, n: int, c: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        check_name(name)
        self.name, self.entry = name, METHODS[name]
        self.estimator = self.entry.make(uniform(n, c), generator=generator)

    def estimate(self, f: Cost, dist: Distribution, k: int, generator: torch.Generator) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        return self.estimator(f, dist, k, generator=generator)

    @property
    def sampled_kl(self) -> bool:
        """Whether the cost includes the sampled KL."""
        return self.name in OWN_SAMPLED_KL

    @property
    def value_is_unbiased(self) -> bool:
        """Whether the value of the estimate can be reported as the −ELBO."""
        return (self.entry.unbiased or self.name == "straight_through") and not self.sampled_kl

    def check(self, n: int, c: int, k: int) -> None:
        """Try the estimator once on a uniform distribution, and refuse what it is not defined for."""
        try:
            self.entry(
                lambda z: z.flatten(-2).sum(-1), uniform(n, c), k, generator=torch.Generator()
            )
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.name} does not apply here: {error}") from error


def uniform(n: int, c: int) -> Distribution:
    """A uniform distribution over n one-hot variables of c categories."""
    return Independent(OneHotCategorical(logits=torch.zeros(1, n, c)), 1)
