"""A language model that is a table: the logits of the next token by the tokens before it."""

from __future__ import annotations

import math
from itertools import product

import torch
from problems import seeded

SYMBOLS, LENGTH, END = 4, 3, 0


def logits(tokens, seed=0):
    """(SYMBOLS,), different after all tokens."""
    number = sum((token + 1) * 7**i for i, token in enumerate(tokens))
    return 2.0 * torch.randn(SYMBOLS, generator=seeded(1000 * seed + number))


def completions(
    temperature=1.0, top_k=SYMBOLS, of=logits, symbols=SYMBOLS, length=LENGTH, ends=(END,)
):
    """The log-probability of every possible completion."""
    law = {}
    for x in product(range(symbols), repeat=length):
        log_p, tokens = 0.0, []
        for token in x:
            row = of(tokens).double() / temperature
            least = row.topk(top_k).values[-1]
            log_probs = row.masked_fill(row < least, -torch.inf).log_softmax(-1)
            log_p += log_probs[token].item()
            tokens.append(token)
            if token in ends:
                break
        if log_p > -math.inf:
            law[tuple(tokens)] = log_p
    return law
