"""Which gradient estimator suits my model? Measure all of them on it, and take the advice.

The model here is a policy that attends to one of twenty places in an image; put your own in its
place. Run it with `python examples/compare_estimators.py`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import swor


class HardAttention(nn.Module):
    """Looks at one of twenty places, and predicts the target from what it sees there."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.Linear(100, 32), nn.Tanh(), nn.Linear(32, 20))
        self.predict = nn.Linear(5, 1)

    def forward(self, image: Tensor) -> Categorical:
        """Where to look, for each image (batch, 20, 5)."""
        return Categorical(logits=3.0 * self.where(image.flatten(-2)))

    def cost(self, image: Tensor, target: Tensor, place: Tensor) -> Tensor:
        """The squared error, (batch, k), of looking at ``place`` (batch, k)."""
        seen = image.gather(-2, place.unsqueeze(-1).expand(*place.shape, 5))
        return (self.predict(seen).squeeze(-1) - target.unsqueeze(-1)).square()


def main() -> None:
    """Compare, show the table, and print the recommendation."""
    torch.manual_seed(0)
    image, target, model = torch.randn(16, 20, 5), torch.randn(16), HardAttention()

    dist = model(image)
    cost = partial(model.cost, image, target)
    names = ["unordered_set", "reinforce", "reinforce_sampled_baseline", "sum_and_sample", "risk"]
    result = swor.compare(names, cost, dist, k=4, parameters=model.parameters(), repeats=300)
    print(result)
    print(result.recommend())


if __name__ == "__main__":
    main()
