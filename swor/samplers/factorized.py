"""An independent product of categoricals, as a sequence model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from swor.errors import check_log_probs
from swor.samplers.categorical import independent


@dataclass(frozen=True)
class Factorized:
    r"""$p(x) = \prod_i p_i(x_i)$: n independent variables of c categories each.

    One variable over $c^n$ outcomes, to be sampled by :func:`swor.stochastic_beam_search`,
    :func:`swor.beam_search` and :func:`swor.ancestral_sample`.

    Attributes:
        log_probs: normalised log-probabilities, (*batch, n, c); −inf masks a category.
    """

    log_probs: Tensor

    def __post_init__(self) -> None:
        check_log_probs("log_probs", self.log_probs)
        if self.log_probs.dim() < 2 or self.log_probs.shape[-2] < 1:
            raise ValueError(
                f"log_probs has shape {tuple(self.log_probs.shape)}; expected (*batch, n, c): n "
                "variables of c categories. For a single variable use gumbel_top_k."
            )

    @property
    def length(self) -> int:
        """The number of variables."""
        return self.log_probs.shape[-2]

    @property
    def end(self) -> None:
        """All sequences have the same length."""
        return None

    def start(self) -> int:
        """The variable that comes next."""
        return 0

    def step(self, state: int) -> tuple[Tensor, int]:
        """The same log-probabilities for every beam."""
        return self.log_probs[..., state, :].unsqueeze(-2), state

    def select(self, state: int, parents: Tensor, symbols: Tensor) -> int:
        """On to the next variable."""
        return state + 1

    def log_prob(self, value: Tensor) -> Tensor:
        """The sum of the log-probabilities of the variables, (*batch, k)."""
        return self.log_probs.gather(-1, value.mT).sum(-2)

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """K independent outcomes, (*batch, k, n)."""
        return independent(self.log_probs, k, generator).mT
