"""Distinct sequences of a model, drawn some at a time."""

from __future__ import annotations

from typing import Generic

import torch
from torch import Tensor

from swor.checks import check_count, check_normalized
from swor.samplers.beams import search
from swor.samplers.model import SequenceModel, State, log_prob
from swor.samplers.remaining import Drawn, Remaining
from swor.samplers.stream import threshold
from swor.types import Sample, Scheme


class DistinctSequences(Generic[State]):
    r"""Distinct sequences of a model, of which more can be drawn at any time.

    $$x_{k+1} \sim p(x) / \Bigl(1 - \sum_{i \le k} p(x_i)\Bigr), \qquad x \ne x_1, \dots, x_k$$

    Every call of :meth:`draw` is one stochastic beam search over the sequences that were not drawn before,
    for all elements of the batch together. So at any time the sequences are a sample without replacement.
    Use it if the number of sequences is not known in advance; otherwise use
    :func:`swor.stochastic_beam_search`. Drawing all k sequences at once is as fast as a stochastic beam
    search, and drawing them one by one takes k passes through the model.

    The model must not change between draws. Make a new object after each step of an optimiser.

    Args:
        model: a :class:`swor.SequenceModel`, or a :class:`swor.Factorized`.
        generator: the source of randomness.

    >>> import swor
    >>> coins = swor.Factorized(torch.full((3, 2), 0.5).log())
    >>> sequences = DistinctSequences(coins, generator=torch.Generator().manual_seed(0))
    >>> while sequences.log_rest.exp() > 0.3:
    ...     sequences.draw(2)
    >>> sequences.sample().value.shape  # six of eight sequences have three quarters of the mass
    torch.Size([6, 3])

    References:
        | Incremental Sampling Without Replacement for Sequence Models (Shi et al., 2020)
        | https://arxiv.org/abs/2002.09067
    """

    def __init__(
        self, model: SequenceModel[State], *, generator: torch.Generator | None = None
    ) -> None:
        self.model, self.generator = model, generator
        self._drawn: Drawn | None = None
        self._log_p = torch.empty(0)  # (*batch, k)
        self._kappa: Tensor | None = None

    @property
    def k(self) -> int:
        """The number of sequences so far."""
        return 0 if self._drawn is None else self._drawn.symbols.shape[-2]

    @property
    def log_rest(self) -> Tensor:
        """The log of the probability mass of the sequences that were not drawn, (*batch,)."""
        return torch.zeros(()) if self._drawn is None else self._drawn.log_rest[..., 0, 0]

    @torch.no_grad()
    def draw(self, n: int = 1) -> None:
        """Draw n more sequences for every element of the batch.

        Args:
            n: the number of sequences. It is an error if an element of the batch has fewer left.
        """
        check_count("n", n)
        self._check_enough(n, self.log_rest.unsqueeze(-1))
        remaining = Remaining(self.model, self._drawn)
        try:
            found = search(remaining, n, generator=self.generator)
        except ValueError as error:
            error.add_note(f"The {self.k} sequences that were drawn before do not count.")
            raise
        self._check_enough(n, found.log_p)
        self._add(remaining.found(found.value), found.log_p + self.log_rest.unsqueeze(-1))

    def sample(self) -> Sample:
        """Return all sequences so far, in the order in which they were drawn.

        Returns:
            A sample whose ``value`` (*batch, k, length) contains the symbols. Unless gradients are disabled,
            ``log_p`` carries the gradient of the model, which takes one more pass through it.
        """
        if self._drawn is None:
            raise ValueError("there is no sequence yet; expected at least one. Call draw first.")
        if self._kappa is None:
            self._kappa = threshold(self._log_p, self.log_rest, self.generator)
        value = self._drawn.symbols
        log_p = log_prob(self.model, value) if torch.is_grad_enabled() else self._log_p
        return Sample(
            value=value,
            log_p=log_p,
            log_rest=self.log_rest.to(log_p.dtype),
            kappa=self._kappa.to(log_p.dtype),
            scheme=Scheme.WITHOUT_REPLACEMENT,
        )

    def _add(self, new: Drawn, log_p: Tensor) -> None:
        if self._drawn is not None:
            new = self._drawn.with_more(new)
            log_p = torch.cat([self._log_p, log_p], dim=-1)
        total = log_p.exp().sum(-1) + new.log_rest[..., 0, 0].exp()
        check_normalized(total, log_p.dtype, steps=self.model.length)
        self._drawn, self._log_p, self._kappa = new, log_p, None

    def _check_enough(self, n: int, log_p: Tensor) -> None:
        """Check on every device that n sequences are left, because later draws depend on it."""
        if bool((log_p == -torch.inf).any()):
            left = int((log_p > -torch.inf).sum(-1).min())
            raise ValueError(
                f"n is {n}, but an element of the batch has only {left} sequences of positive "
                f"probability besides the {self.k} that were drawn before; expected n <= {left}."
            )
