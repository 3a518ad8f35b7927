"""What a search asks of the model: no prompt twice, nothing for what has ended."""

from __future__ import annotations

import torch
from problems import seeded
from tiny_models import SYMBOLS, masks, tiny

from swor.integrations.transformers import sample_completions


class Evaluations:
    """Counts the rows that a model evaluates."""

    def __init__(self, model):
        self.model, self.rows = model, []

    def __enter__(self):
        self.hook = self.model.register_forward_pre_hook(self._count, with_kwargs=True)
        return self

    def _count(self, _, args, given):
        self.rows.append(tuple(given["input_ids"].shape))

    def __exit__(self, *error):
        self.hook.remove()


def test_prompts_are_encoded_once_and_ended_completions_cost_nothing():
    model, (ids, mask) = tiny("gpt2"), masks("gpt2")
    with torch.no_grad(), Evaluations(model) as seen:
        sample = sample_completions(model, ids, mask, k=8, max_new_tokens=6, generator=seeded(3))
    assert seen.rows[0] == (2, 3)
    ended = (sample.value[..., :-1] == 0).any(-1).sum()
    assert ended > 0 and all(columns == 1 for _, columns in seen.rows[1:])
    assert seen.rows[-1][0] <= 16 - int((sample.value[..., :4] == 0).any(-1).sum())

    def end_now(tokens, logits):
        return logits.index_fill(-1, torch.arange(1, SYMBOLS), -torch.inf)

    with torch.no_grad(), Evaluations(model) as seen:
        sample_completions(model, ids, mask, k=1, max_new_tokens=50, logits_processor=end_now)
    assert seen.rows == [(2, 3)]
