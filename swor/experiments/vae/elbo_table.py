"""The −ELBO of runs in numbers, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from swor.experiments.vae.curves import Curve, Group, grouped, spread
from swor.experiments.vae.published import Domain, paper_elbo

MILESTONES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
COLUMNS = 4  # of epochs


def markdown(curves: Sequence[Curve]) -> str:
    """A table for each domain: validation at some epochs, the lowest of both splits, the paper's."""
    domains = sorted({curve.settings.domain for curve in curves})
    return "\n".join(
        _table(domain, [c for c in curves if c.settings.domain == domain]) for domain in domains
    )


def _table(domain: Domain, curves: Sequence[Curve]) -> str:
    valid = grouped([c for c in curves if c.split == "valid"])
    train = {g.shared: g for g in grouped([c for c in curves if c.split == "train"])}
    epochs = milestones(max(int(c.epochs[-1]) for c in curves if c.split == "valid"))
    header = [
        "estimator",
        *(f"epoch {epoch}" for epoch in epochs),
        "lowest",
        "lowest, training",
        "paper's lowest",
        "paper's lowest, training",
    ]
    lines = [header, ["---"] * len(header)]
    lines += [_row(group, train[group.shared], epochs, domain) for group in valid]
    title = f"{domain.data}, {domain.categories}^{domain.dims}"
    return "\n".join([f"### {title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _row(valid: Group, train: Group, epochs: Sequence[int], domain: Domain) -> list[str]:
    paper = paper_elbo(valid.settings.estimator, valid.settings.samples, domain)
    return [
        valid.name,
        *(valid.at(epoch) for epoch in epochs),
        spread(valid.lowest),
        spread(train.lowest),
        *(("", "") if paper is None else (f"{paper[1]:.1f}", f"{paper[0]:.1f}")),
    ]


def milestones(longest: int) -> list[int]:
    """The last few round numbers of epochs, and the longest of all.

    >>> milestones(20), milestones(3)
    ([2, 5, 10, 20], [1, 2, 3])
    """
    return sorted({e for e in MILESTONES if e < longest} | {longest})[-COLUMNS:]
