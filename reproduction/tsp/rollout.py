"""The greedy-rollout baseline: the best model so far says how long a tour of an instance is."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, distributed, nn

import swor
from reproduction.harness.task import seeded
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.problem import random_instances, tour_length
from swor.estimators.baselines import MovingAverage

LEVEL = 0.05
DECAY = 0.8


class RolloutBaseline(nn.Module):
    r"""$b(x) = f(\text{greedy tour of } x)$ by a frozen model.

    In the first epoch, when the model has learned nothing, it is a moving average of earlier
    lengths, $\beta b + (1 - \beta) \bar f$ with $\beta = 0.8$. After every epoch the frozen model is
    replaced if a one-sided paired t-test at 5 % says that the trained one is better. The instances of
    the test are then drawn anew, so that the baseline does not overfit to them (Kool et al. 2019).

    A model that is trained already has no such first epoch.
    """

    warm: Tensor
    replaced: Tensor

    def __init__(
        self, model: AttentionModel, *, nodes: int, size: int, seed: int, trained: bool = False
    ) -> None:
        super().__init__()
        self.best = copy.deepcopy(model).eval().requires_grad_(False)
        self.nodes, self.size, self.seed = nodes, size, seed
        self.average = MovingAverage(DECAY)
        self.register_buffer("warm", torch.tensor(trained))
        self.register_buffer("replaced", torch.tensor(0))

    def forward(self, instances: Tensor, cost: Tensor) -> Tensor:
        """Return the baseline of each instance, (batch, 1); in the first epoch it depends on past costs."""
        if not self.warm:
            average: Tensor = self.average(cost, group=distributed.group.WORLD)
            return average.expand_as(cost)
        return greedy_lengths(self.best.to(instances.device), instances).unsqueeze(-1)

    def end_epoch(self, model: AttentionModel) -> dict[str, float]:
        """Replace the frozen model if the trained one is better, and return the p-value."""
        from scipy.stats import ttest_rel

        self.warm.fill_(True)
        device = next(model.parameters()).device
        generator = seeded(self.seed, "rollout", int(self.replaced))
        instances = random_instances(self.size, self.nodes, generator=generator).to(device)
        new, old = (greedy_lengths(m, instances) for m in (model, self.best.to(device)))
        p = float(ttest_rel(new.cpu(), old.cpu(), alternative="less").pvalue)
        if p < LEVEL:
            self.best.load_state_dict(model.state_dict())
            self.replaced += 1
        return {"rollout_p_value": p, "rollout_replaced": float(self.replaced)}


@torch.no_grad()
def greedy_lengths(model: AttentionModel, instances: Tensor, *, at_once: int = 1000) -> Tensor:
    """Return the lengths of tours that always go to the likeliest node, (n,)."""
    tours = (swor.beam_search(model(part), 1).value for part in instances.split(at_once))
    return tour_length(instances, torch.cat(list(tours))).squeeze(-1)
