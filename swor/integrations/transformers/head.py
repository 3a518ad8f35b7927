"""The distribution of the next token: logits, after what a caller wants of them, normalised."""

from __future__ import annotations

import torch
from torch import Tensor

from swor.integrations.transformers.catalogue import Catalogue
from swor.integrations.transformers.networks import Network
from swor.integrations.transformers.processors import Processor, steps_of
from swor.integrations.transformers.prompts import Tokens
from swor.math.logspace import working_dtype


class Head:
    """From logits to log-probabilities of the next token.

    Args:
        network: the model and the prompts.
        tokens: those that end completions.
        processor: changes the logits, and so the distribution.
        catalogue: what completions are restricted to, before the processor sees the logits.
    """

    def __init__(
        self,
        network: Network,
        tokens: Tokens,
        *,
        processor: Processor | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.network, self.steps, self.catalogue = network, steps_of(processor), catalogue
        self.end = tokens.ends[0] if tokens.ends else None

    @property
    def plain(self) -> bool:
        """Whether the distribution is that of the logits, whatever came before."""
        return not self.steps and self.catalogue is None

    def log_probs(self, logits: Tensor, tokens: Tensor, owners: Tensor) -> Tensor:
        """Log-probabilities of what follows ``tokens`` (rows, t) of prompts ``owners``, (rows, symbols)."""
        logits = logits.to(working_dtype(logits.dtype))
        if self.catalogue is not None:
            allowed = self.catalogue.allowed(tokens, logits.shape[-1], self.end)
            logits = logits.masked_fill(~allowed, -torch.inf)
        if self.steps:
            context = self.network.context(tokens, owners)
            for step in self.steps:
                logits = step(context, logits, owners)
            self._check(logits, tokens, owners)
        return torch.log_softmax(logits, -1)

    def _check(self, logits: Tensor, tokens: Tensor, owners: Tensor) -> None:
        masked = (logits == -torch.inf).all(-1)
        if bool(masked.any()):
            raise ValueError(
                f"logits_processor masks every token after {tokens[masked][0].tolist()}, a "
                f"completion of prompt {int(owners[masked][0])}; expected it to leave at least one."
            )
