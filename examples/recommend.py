"""Train a language model to recommend items of a catalogue, k different ones per user.

A shop is made on the spot: every item has three tokens, as the semantic ids of generative
recommenders have, and a user is shown by the items that they bought. A small GPT learns from the
ratings of what it recommends. The catalogue restricts what is drawn, so it has to restrict what is
scored too. Many recommenders draw with a mask and score without it: the first lines printed show the
bias of both gradients with respect to the exact gradient. The last lines are the ratings after training in
both ways, with the same initial weights and the same users for each seed. They show what a short training
reaches, and the spread between seeds; which way is right follows from the bias alone. Run it with
`python examples/recommend.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import swor
from swor.integrations.transformers import Catalogue, completion_log_probs, sample_completions

LEVELS, CODES, ITEMS, BOUGHT, TASTES = 3, 8, 60, 2, 4
SEPARATOR = LEVELS * CODES
TEST_USERS = 1_000_000  # a seed that no training has
OPTIONS = {"eos_token_id": []}  # all items have LEVELS tokens: nothing has to end them


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Shop:
    """Items with tokens and tastes; users buy what they like and rate what they are recommended."""

    def __init__(self, generator: torch.Generator) -> None:
        chosen = torch.randperm(CODES**LEVELS, generator=generator)[:ITEMS]
        codes = torch.stack([chosen // CODES**level % CODES for level in range(LEVELS)], dim=-1)
        self.tokens = codes + CODES * torch.arange(LEVELS)  # (ITEMS, LEVELS)
        self.taste = torch.randn(ITEMS, TASTES, generator=generator)
        self.catalogue = Catalogue(self.tokens.tolist())

    def users(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What users bought, as prompts, and how they would rate every item, (count, ITEMS)."""
        likes = torch.randn(count, TASTES, generator=generator) @ self.taste.T
        bought = likes.topk(BOUGHT).indices
        prompts = self.tokens[bought].flatten(1)
        rating = likes.sigmoid().scatter(-1, bought, 0.0)  # nobody buys the same twice
        return torch.nn.functional.pad(prompts, (0, 1), value=SEPARATOR), rating


def make_model() -> GPT2LMHeadModel:
    sizes = {"n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 4}
    special = {"bos_token_id": SEPARATOR, "eos_token_id": None, "pad_token_id": SEPARATOR}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=SEPARATOR + 1, **sizes, **special))
    return model.eval()  # without dropout


def loss(model: GPT2LMHeadModel, shop: Shop, prompts: Tensor, rating: Tensor, k: int) -> Tensor:
    """Draw k different items per user, with the catalogue, and score them with it."""
    sample = sample_completions(
        model, prompts, k=k, max_new_tokens=LEVELS, catalogue=shop.catalogue, **OPTIONS
    )
    reward = rating.gather(-1, shop.catalogue.index(sample.value))
    return swor.unordered_set(sample).loss(-reward).mean()


def common_loss(
    model: GPT2LMHeadModel, shop: Shop, prompts: Tensor, rating: Tensor, k: int
) -> Tensor:
    """The same items with the same weights, but scored as if there were no catalogue."""
    with torch.no_grad():
        sample = sample_completions(
            model, prompts, k=k, max_new_tokens=LEVELS, catalogue=shop.catalogue, **OPTIONS
        )
    cost = -rating.gather(-1, shop.catalogue.index(sample.value))
    weights = swor.unordered_set(sample)
    slope = weights.weight * (cost - weights.baseline(cost))
    free = completion_log_probs(model, prompts, sample.value, **OPTIONS)
    return (slope * free).sum(-1).mean()


def exact_loss(model: GPT2LMHeadModel, shop: Shop, prompts: Tensor, rating: Tensor) -> Tensor:
    """The expected cost, by a sum over the whole catalogue."""
    items = shop.tokens.expand(len(prompts), -1, -1)
    log_p = completion_log_probs(model, prompts, items, catalogue=shop.catalogue, **OPTIONS)
    return -(log_p.exp() * rating).sum(-1).mean()


def gradient(model: GPT2LMHeadModel, value: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])


def show_bias(shop: Shop, repeats: int) -> None:
    """The distance of the mean gradient from the exact one, in lengths of the exact one."""
    model, (prompts, rating) = make_model(), shop.users(16, seeded(0))
    exact = gradient(model, exact_loss(model, shop, prompts, rating))
    for name, way in (("with the catalogue", loss), ("without it", common_loss)):
        drawn = torch.stack(
            [gradient(model, way(model, shop, prompts, rating, 32)) for _ in range(repeats)]
        )
        bias = (drawn.mean(0) - exact).norm() / exact.norm()
        noise = (drawn.var(0).sum() / repeats).sqrt() / exact.norm()
        print(f"drawn with the catalogue, scored {name}: bias {bias:.3f} (noise {noise:.3f})")


def train(shop: Shop, way: Callable[..., Tensor], steps: int, seed: int) -> float:
    """The expected rating of a recommendation after training; a seed has the same users for every way."""
    torch.manual_seed(seed)
    model, users = make_model(), seeded(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        way(model, shop, *shop.users(32, users), 4).backward()
        optimizer.step()
    with torch.no_grad():
        return -exact_loss(model, shop, *shop.users(500, seeded(TEST_USERS))).item()


def main(steps: int = 200, repeats: int = 200, seeds: int = 3) -> None:
    torch.manual_seed(0)
    shop = Shop(seeded(0))
    show_bias(shop, repeats)
    for name, way in (("with the catalogue", loss), ("without it", common_loss)):
        ratings = [train(shop, way, steps, seed) for seed in range(seeds)]
        by_seed = ", ".join(f"{rating:.3f}" for rating in ratings)
        mean = sum(ratings) / seeds
        print(f"{steps} steps, scored {name}: expected rating {mean:.3f} (by seed: {by_seed})")
    _, rating = shop.users(500, seeded(TEST_USERS))
    print(
        f"the best item for everyone: {rating.amax(-1).mean():.3f}, any item: {rating.mean():.3f}"
    )


if __name__ == "__main__":
    main()
