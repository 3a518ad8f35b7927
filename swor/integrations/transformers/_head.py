"""From logits to next-token log-probabilities: a catalogue, logits processors, normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from swor._checks import kind
from swor.integrations.transformers._networks import Network
from swor.integrations.transformers._prompts import Tokens
from swor.integrations.transformers.catalogue import Catalogue
from swor.math._logspace import working_dtype

Processor = Callable[[Tensor, Tensor], Tensor]  # (token ids, logits) -> logits
Step = Callable[[Tensor, Tensor, Tensor], Tensor]  # likewise, and the prompt of every row


class Head:
    """The distribution of the next token, as a function of the logits.

    A catalogue restricts the completions, before the processor receives the logits and changes them.
    """

    def __init__(
        self,
        network: Network,
        tokens: Tokens,
        *,
        processor: Processor | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.network, self.tokens = network, tokens
        self.steps, self.catalogue = steps_of(processor), catalogue

    @property
    def plain(self) -> bool:
        """Whether the logits alone define the distribution, whatever the tokens before."""
        return not self.steps and self.catalogue is None

    def log_probs(
        self, logits: Tensor, tokens: Tensor, owners: Tensor, drawn: Tensor | None = None
    ) -> Tensor:
        """Return log-probabilities after ``tokens`` (rows, t) of prompts ``owners``, (rows, symbols).

        Tokens that were ``drawn`` from this distribution, (rows,), stay possible.
        """
        logits = logits.to(working_dtype(logits.dtype))
        if self.catalogue is not None:
            allowed = self.catalogue.allowed(tokens, logits.shape[-1], self.tokens.end)
            logits = logits.masked_fill(~allowed, -torch.inf)
        if self.steps:
            context = self.network.context(tokens, owners)
            for step in self.steps:
                before, logits = logits, _checked(step(context, logits, owners), logits)
                if drawn is not None:
                    logits = _kept(drawn, before, logits)
            self._check(logits, tokens, owners)
        return torch.log_softmax(logits, -1)

    def _check(self, logits: Tensor, tokens: Tensor, owners: Tensor) -> None:
        masked = (logits == -torch.inf).all(-1)
        if bool(masked.any()):
            raise ValueError(
                f"logits_processor masks every token after {tokens[masked][0].tolist()}, a "
                f"completion of prompt {int(owners[masked][0])}; expected it to leave at least one."
            )


def _kept(drawn: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return processed logits in which the tokens that were drawn are not cut off.

    A search computes the logits of one token at a time. Those of all tokens at once differ by rounding, which
    may move a token across the border of top-k or top-p.
    """
    own = drawn.unsqueeze(-1)
    cut = after.gather(-1, own) == -torch.inf
    if not bool(cut.any()):
        return after
    rows = cut.squeeze(-1)
    only_masked = (after[rows] == before[rows]) | (after[rows] == -torch.inf)
    if not bool(only_masked.all()):
        raise ValueError(
            "logits_processor masks a token that was drawn, after rounding, and changes logits in the same "
            "step; expected one or the other, so that the token can be kept. Give a list of two processors, "
            "or draw under torch.no_grad()."
        )
    return after.scatter(-1, own, torch.where(cut, before.gather(-1, own), after.gather(-1, own)))


def _checked(processed: object, given: Tensor) -> Tensor:
    """Check that a logits processor has returned logits of the same form."""
    if (
        isinstance(processed, Tensor)
        and processed.shape == given.shape
        and processed.is_floating_point()
    ):
        return processed
    found = kind(processed)
    dtype = f" and dtype {processed.dtype}" if isinstance(processed, Tensor) else ""
    raise TypeError(
        f"logits_processor returned {found}{dtype}; expected logits of shape {tuple(given.shape)} in "
        "floating point. Return the changed logits, with -inf for tokens that must not follow."
    )


def steps_of(processor: Processor | None) -> list[Step]:
    """Return one or several processors as functions that receive the prompt of every row as well.

    ``PrefixConstrainedLogitsProcessor`` takes the index of a row for that of its prompt, which is right in
    ``generate``. Here completions that have ended have no row, so the index of the prompt is passed.
    """
    if processor is None:
        return []
    given: Any = processor
    several = list(given) if isinstance(given, list) else [given]
    for x in several:
        if not callable(x):
            raise TypeError(
                f"logits_processor is or contains {kind(x)}; expected functions from token ids and logits to "
                "logits, such as a LogitsProcessorList."
            )
    constraint = "_prefix_allowed_tokens_fn"
    return [
        _constrained(getattr(x, constraint)) if hasattr(x, constraint) else _plain(x)
        for x in several
    ]


def _constrained(allowed: Callable[[int, Tensor], Sequence[int]]) -> Step:
    def step(tokens: Tensor, logits: Tensor, owners: Tensor) -> Tensor:
        masked = torch.ones_like(logits, dtype=torch.bool)
        for row, (owner, context) in enumerate(zip(owners.tolist(), tokens, strict=True)):
            masked[row, torch.as_tensor(allowed(owner, context), dtype=torch.long)] = False
        return logits.masked_fill(masked, -torch.inf)

    return step


def _plain(processor: Processor) -> Step:
    def step(tokens: Tensor, logits: Tensor, owners: Tensor) -> Tensor:
        return processor(tokens, logits)

    return step
