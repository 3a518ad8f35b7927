"""Choose a gradient estimator for your model: measure several, and print a recommendation.

The model of this example attends to one of twenty places in an image; replace it by your own. Run it with
`python examples/compare_estimators.py`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import swor


class HardAttention(nn.Module):
    """A model that attends to one of twenty places and predicts the target from the features there."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.Linear(100, 32), nn.Tanh(), nn.Linear(32, 20))
        self.predict = nn.Linear(5, 1)

    def forward(self, image: Tensor) -> Categorical:
        """Return the distribution over places for each image (batch, 20, 5)."""
        return Categorical(logits=3.0 * self.where(image.flatten(-2)))

    def cost(self, image: Tensor, target: Tensor, place: Tensor) -> Tensor:
        """Return the squared error, (batch, k), of the prediction from ``place`` (batch, k)."""
        seen = image.gather(-2, place.unsqueeze(-1).expand(*place.shape, 5))
        return (self.predict(seen).squeeze(-1) - target.unsqueeze(-1)).square()


def main() -> None:
    """Compare the estimators, and print the table and the recommendation."""
    torch.manual_seed(0)
    image, target, model = torch.randn(16, 20, 5), torch.randn(16), HardAttention()

    dist = model(image)
    cost = partial(model.cost, image, target)
    names = ["unordered_set", "rloo", "reinforce_sampled_baseline", "sum_and_sample", "risk"]
    result = swor.compare(names, cost, dist, k=4, parameters=model.parameters(), repeats=300)
    print(result)
    print(result.recommend())


if __name__ == "__main__":
    main()
