"""Evaluate pass@m of a language model from k different completions per prompt, with a standard error.

A tiny GPT, not trained, is asked for the larger of two digits. It has so few completions that the exact
pass@m can be printed beside the estimate. Run it with `python examples/pass_at_m.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import swor
from swor.integrations.transformers import sample_completions

BASE = 4
END = BASE
ALL = (BASE + 1) * BASE + 1  # a digit and any token, or the end at once


def make_model() -> GPT2LMHeadModel:
    sizes = {"n_positions": 8, "n_embd": 32, "n_layer": 2, "n_head": 2}
    special = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": END}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=BASE + 1, initializer_range=0.3, **sizes, **special)
    )


def passes(prompts: Tensor, completions: Tensor) -> Tensor:
    """1 where a completion (batch, k, 2) is the larger digit and the end, (batch, k)."""
    answer = torch.stack([prompts.amax(-1), torch.full((len(prompts),), END)], dim=-1)
    return (completions == answer.unsqueeze(1)).all(-1).float()


@torch.no_grad()
def main(count: int = 64, k: int = 8) -> None:
    torch.manual_seed(0)
    model = make_model().eval()
    prompts = torch.randint(BASE, (count, 2))
    sample = sample_completions(model, prompts, k=k, max_new_tokens=2)
    everything = sample_completions(model, prompts, k=ALL, max_new_tokens=2)
    right, all_right = passes(prompts, sample.value), passes(prompts, everything.value)
    for m in (1, 2, 4):
        estimate = swor.best_of(sample, m)
        value, variance = estimate.mean(right), estimate.variance(right)
        of_samples = (
            variance.clamp(min=0.0).sum().sqrt() / count
        )  # these prompts, other completions
        of_prompts = value.std() / count**0.5  # other prompts of the same kind
        exact = swor.best_of(everything, m).mean(all_right).mean()
        print(
            f"pass@{m} {value.mean():.3f} ± {of_samples:.3f} for these prompts "
            f"(exact {exact:.3f}), ± {of_prompts:.3f} for prompts like these"
        )


if __name__ == "__main__":
    main()
