"""Sorting digits: prompts, and a reward that can be verified."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sorting(NamedTuple):
    """Strings of digits to be sorted; tokens are the digits, a separator and the end.

    >>> task = Sorting(digits=3, base=10)
    >>> task.reward(torch.tensor([[3, 1, 2, 10]]), torch.tensor([[[1, 2, 3, 11], [1, 2, 11, 11]]]))
    tensor([[1.0000, 0.7500]])
    """

    digits: int
    base: int

    @property
    def separator(self) -> int:
        """The last token of a prompt."""
        return self.base

    @property
    def end(self) -> int:
        """The token that ends a completion, and pads it; the last of all tokens."""
        return self.base + 1

    @property
    def length(self) -> int:
        """The largest number of tokens of a completion: the digits and the end."""
        return self.digits + 1

    def prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw random strings, each followed by a separator, (count, digits + 1)."""
        strings = torch.randint(self.base, (count, self.digits), generator=generator)
        return torch.nn.functional.pad(strings, (0, 1), value=self.separator)

    def reward(self, prompts: Tensor, value: Tensor) -> Tensor:
        """Return the share of correct tokens of completions (batch, k, length), (batch, k)."""
        return (value == self.answers(prompts)).float().mean(-1)

    def solved(self, prompts: Tensor, value: Tensor) -> Tensor:
        """Return whether all tokens are correct, (batch, k)."""
        return (value == self.answers(prompts)).all(-1)

    def answers(self, prompts: Tensor) -> Tensor:
        """Return the right completion of each prompt, (batch, 1, length)."""
        digits = prompts[:, :-1].sort(-1).values
        return torch.nn.functional.pad(digits, (0, 1), value=self.end).unsqueeze(1)
