"""``swor reproduce``: the paper's results, in a short run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.distributions import Categorical

from swor.diagnostics.enumeration import ExactMoments, exact_moments
from swor.estimators.registry import ESTIMATORS, Estimator
from swor.experiments.bernoulli.run import bernoulli
from swor.experiments.bernoulli.settings import Settings as Bernoulli
from swor.experiments.folder import create, unused

if TYPE_CHECKING:
    from rich.table import Table

K = range(1, 5)
PROBABILITIES = (0.4, 0.25, 0.2, 0.1, 0.05)
COSTS = (1.0, -0.5, 2.0, 0.3, 4.0)


@dataclass(frozen=True)
class Settings:
    """Exact bias and variance of every rule on a small domain, then Figure 1 of the paper."""

    out: Path | None = None
    """A new folder for the results; by default the first free runs/reproduce/run-N."""


def reproduce(settings: Settings) -> None:
    """Print the table of rules, and run the Bernoulli experiment."""
    from rich.console import Console

    folder = create(settings.out or unused(Path("runs/reproduce"), "run"))
    folder.write_settings(settings)
    Console().print(rules_table())
    bernoulli(Bernoulli(out=folder.path / "bernoulli"))


def rules_table() -> Table:
    """Bias and variance of the gradient of every rule, by going through all samples."""
    from rich.table import Table

    table = Table(
        title="Exact variance of the gradient on 5 outcomes, for k samples",
        caption="bias: the norm of the mean gradient less the true one, the largest of all k",
    )
    table.add_column("rule", no_wrap=True)
    for column in ("bias", *(f"k = {k}" for k in K)):
        table.add_column(column, justify="right")
    for name, entry in rules():
        moments = [small_domain(entry, k) for k in K]
        bias = max(float(m.gradient_bias.norm()) for m in moments)
        table.add_row(name, f"{bias:.1e}", *(f"{float(m.total_variance):.3g}" for m in moments))
    return table


def rules() -> Iterator[tuple[str, Estimator]]:
    """Every entry of ESTIMATORS that is a rule."""
    for name, entry in ESTIMATORS.items():
        if entry.rule is not None:
            yield name, entry


def small_domain(entry: Estimator, k: int) -> ExactMoments:
    """The moments of a rule on five outcomes, by the logits."""
    if entry.rule is None or entry.scheme is None:
        raise ValueError(
            "the estimator is not a rule; expected one that is, such as unordered_set."
        )
    logits = torch.tensor(PROBABILITIES, dtype=torch.float64).log().requires_grad_()
    costs = torch.tensor(COSTS, dtype=torch.float64)
    return exact_moments(
        entry.rule, entry.scheme, lambda x: costs[x], Categorical(logits=logits), k, [logits]
    )
