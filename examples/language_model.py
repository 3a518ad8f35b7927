"""Train a language model with the rewards of k different completions per prompt.

A small GPT learns to sort digits from scratch; replace the model, the prompts and the reward by your own.
The command `python -m reproduction lm` runs the same task as an experiment and can also use RLOO. Run this
example with `python examples/language_model.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import swor
from swor.integrations.transformers import beam_completions, sample_completions

DIGITS, BASE = 4, 4
SEPARATOR, END = BASE, BASE + 1


def make_model() -> GPT2LMHeadModel:
    sizes = {"n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 4}
    special = {"bos_token_id": SEPARATOR, "eos_token_id": END, "pad_token_id": END}
    return GPT2LMHeadModel(GPT2Config(vocab_size=BASE + 2, **sizes, **special))


def make_prompts(count: int) -> Tensor:
    digits = torch.randint(BASE, (count, DIGITS))
    return torch.nn.functional.pad(digits, (0, 1), value=SEPARATOR)


def reward(prompts: Tensor, completions: Tensor) -> Tensor:
    """Return the share of correct tokens, (batch, k), in completions (batch, k, DIGITS + 1)."""
    answers = torch.nn.functional.pad(prompts[:, :-1].sort(-1).values, (0, 1), value=END)
    return (completions == answers.unsqueeze(1)).float().mean(-1)


def main(steps: int = 150) -> None:
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        prompts = make_prompts(32)
        sample = sample_completions(model, prompts, k=4, max_new_tokens=DIGITS + 1)
        r = reward(prompts, sample.value)
        loss = swor.unordered_set(sample).loss(-r).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            group = swor.group_statistics(sample, r)
            print(
                f"step {step:4d}  reward {-loss.item():.3f} ± {group.standard_error.mean():.3f} per prompt, "
                f"mass covered {group.mass_covered.mean():.2f}, "
                f"duplicates avoided {group.duplicates_avoided.mean():.2f} of 4"
            )
    prompts = make_prompts(200)
    with torch.no_grad():
        greedy = beam_completions(model, prompts, k=1, max_new_tokens=DIGITS + 1)
    print(f"sorted without a mistake: {(reward(prompts, greedy.value) == 1).float().mean():.0%}")


if __name__ == "__main__":
    main()
