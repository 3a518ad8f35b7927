"""The distribution of the next token: logits, after what a caller wants of them, normalised."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from swor.integrations.transformers.networks import Network
from swor.math.logspace import working_dtype

Processor = Callable[[Tensor, Tensor], Tensor]  # (token ids, logits) -> logits


class Head:
    """From logits to log-probabilities of the next token.

    Args:
        network: the model and the prompts.
        processor: changes the logits, and so the distribution.
    """

    def __init__(self, network: Network, processor: Processor | None = None) -> None:
        self.network, self.processor = network, processor

    @property
    def plain(self) -> bool:
        """Whether the distribution is that of the logits, whatever came before."""
        return self.processor is None

    def log_probs(self, logits: Tensor, tokens: Tensor, owners: Tensor) -> Tensor:
        """Log-probabilities of what follows ``tokens`` (rows, t) of prompts ``owners``, (rows, symbols)."""
        logits = logits.to(working_dtype(logits.dtype))
        if self.processor is not None:
            logits = self.processor(self.network.context(tokens, owners), logits)
            self._check(logits, tokens, owners)
        return torch.log_softmax(logits, -1)

    def _check(self, logits: Tensor, tokens: Tensor, owners: Tensor) -> None:
        masked = (logits == -torch.inf).all(-1)
        if bool(masked.any()):
            raise ValueError(
                f"logits_processor masks every token after {tokens[masked][0].tolist()}, a "
                f"completion of prompt {int(owners[masked][0])}; expected it to leave at least one."
            )
