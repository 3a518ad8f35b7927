"""Leave-one-out ratios, first and second order, over the textbook methods, and how they grow.

    python benchmarks/ratios.py [--batch 1000000]

Every figure is a ratio within one run. Beside it is the same ratio of the least that any method must do:
write the result, and take its logarithms.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Literal

import torch
from measure import OUTPUT, report, timings
from operations import counted

import swor


def orderings(log_p: torch.Tensor, log_rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Brute force: the probability of every ordering, collected by first and second element."""
    k = log_p.shape[-1]
    orders = torch.tensor(list(permutations(range(k))))
    p = log_p.exp()[..., orders]
    left = 1.0 - p.cumsum(-1) + p
    probability = (p / left).prod(-1)
    first = torch.nn.functional.one_hot(orders[:, 0], k).to(p.dtype)
    second = torch.nn.functional.one_hot(orders[:, 0] * k + orders[:, 1], k * k).to(p.dtype)
    by_first = probability @ first
    by_second = (probability @ second).unflatten(-1, (k, k))
    p = log_p.exp()
    ratio = by_first / by_first.sum(-1, keepdim=True) / p
    left = (1.0 - p).unsqueeze(-1)
    return ratio.log(), (by_second / by_first.unsqueeze(-1) * left / p.unsqueeze(-2)).log()


def trapezoid(log_p: torch.Tensor, log_rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The paper's quadrature: a = 5, 1000 points, the integrand of all pairs at once."""
    a, points, k = 5.0, 1000, log_p.shape[-1]
    log_v = torch.linspace(1 / points, 1 - 1 / points, points).log().view(-1, *[1] * log_p.dim())
    q = torch.log1p(-torch.exp(torch.exp(log_p + a) * log_v))
    base = (torch.exp(log_rest + a) - 1.0) * log_v.squeeze(-1) + q.sum(-1)
    one = (base.unsqueeze(-1) - q).logsumexp(0)
    pairs = base.unsqueeze(-1).unsqueeze(-1) - q.unsqueeze(-1) - q.unsqueeze(-2)
    two = pairs.logsumexp(0)
    log_r = one - (one + log_p).logsumexp(-1, keepdim=True)
    own = torch.eye(k, dtype=torch.bool)
    return log_r, (two - one.unsqueeze(-1)).masked_fill(own, 0.0)


def ours(log_p: torch.Tensor, log_rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The library."""
    return swor.leave_one_out(log_p, log_rest, second_order=True)


def random_sets(batch: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sets of k of 4k outcomes."""
    log_probs = torch.randn(batch, 4 * k, generator=torch.Generator().manual_seed(k)).log_softmax(
        -1
    )
    return log_probs[:, :k].contiguous(), log_probs[:, k:].logsumexp(-1)


def result(batch: int, k: int) -> torch.Tensor:
    """What any method must do at the least: write the ratios."""
    return torch.empty(batch, k * k + k).fill_(1.0)


def against_the_textbook(batch: int = 1024) -> None:
    """How long the library takes, beside brute force and the trapezoid rule."""
    rows: list[dict[str, object]] = []
    for k in (1, 2, 3, 4, 6, 8):
        sets = random_sets(batch, k)
        methods = {"ours": ours, "orderings": orderings, "trapezoid": trapezoid}
        if k == 1:  # there is no second element
            del methods["orderings"]
        exact = swor.leave_one_out(sets[0].double(), sets[1].double(), method="orderings")
        errors = {n: (f(*sets)[0].double() - exact).abs().max().item() for n, f in methods.items()}
        row: dict[str, object] = {"k": k}
        for other in [n for n in methods if n != "ours"]:
            # Two at a time, since what runs before a method may slow it down.
            pair = {n: partial(methods[n], *sets) for n in ("ours", other)}
            took = timings(pair, repeats=100)
            row[f"ours ms beside {other}"] = took["ours"].median * 1e3
            row[f"ours / {other}"] = took["ours"].median / took[other].median
        rows.append(row | {f"error {n}": e for n, e in errors.items()})
    report(f"First and second order ratios, batch {batch}, float32", rows, "ratios")


def rule(batch: int = 128) -> None:
    """What the weights of the estimator cost for a small batch, where operations are what counts."""
    rows: list[dict[str, object]] = []
    for k in (1, 2, 4, 8, 16):
        log_p, log_rest = random_sets(batch, k)
        sample = swor.Sample(log_p, log_p, log_rest, scheme="without_replacement")
        row: dict[str, object] = {"k": k}
        for checks in (True, False):
            swor.set_validate_values(checks)
            took = timings({"rule": lambda s=sample: swor.unordered_set(s)}, repeats=1000)
            _, operations = counted(lambda s=sample: swor.unordered_set(s))
            name = "with checks" if checks else "without"
            row |= {
                f"operations, {name}": operations,
                f"ms, {name}": took["rule"].median * 1e3,
            }
        swor.set_validate_values(True)
        rows.append(row)
    report(f"Weights of the unordered set estimator, batch {batch}, float32", rows, "ratios_rule")


def linear(largest: int) -> None:
    """Time per element of the batch, in that of a batch of 1024."""
    rows: list[dict[str, object]] = []
    for k in (4, 8):
        for batch in [b for b in (1024, 10_000, 100_000) if b < largest] + [largest]:
            ways: dict[str, Callable[[], object]] = {}
            for n, b in (("base", 1024), ("this", batch)):
                sets = random_sets(b, k)
                ways[f"ours {n}"] = lambda s=sets: ours(*s)
                ways[f"write {n}"] = lambda b=b, k=k: result(b, k)
            took = {n: t.median for n, t in timings(ways, repeats=20, seconds=30.0).items()}
            row: dict[str, object] = {"k": k, "batch": batch, "ms": took["ours this"] * 1e3}
            for n, name in (("ours", "per element"), ("write", "per element, write the result")):
                row[name] = took[f"{n} this"] / took[f"{n} base"] * 1024 / batch
            row["ours / write the result"] = took["ours this"] / took["write this"]
            rows.append(row)
    report("Growth with the batch: time per element over that of 1024", rows, "ratios_linear")


def growth(batch: int = 16) -> None:
    """How time grows with k, the two methods beside each other, and what twice the k costs."""
    rows: list[dict[str, object]] = []
    for k in (4, 8, 10, 12, 16, 32, 64, 125, 250, 500, 1000):
        ways: dict[str, Callable[[], object]] = {}
        for n, size in (("half", k // 2), ("this", k)):
            sets = random_sets(batch, size)
            ways[f"integral {n}"] = lambda s=sets: by(s, "integral")
            ways[f"write {n}"] = lambda size=size: result(batch, size)
            ways[f"log {n}"] = lambda size=size: result(batch, size).log_()
        if k <= 12:
            ways["subsets this"] = lambda s=sets: by(s, "subsets")
        took = {n: t.median for n, t in timings(ways, repeats=15, seconds=15.0).items()}
        row: dict[str, object] = {
            "batch": batch,
            "k": k,
            "integral ms": took["integral this"] * 1e3,
        }
        if k <= 12:
            row["subsets ms"] = took["subsets this"] * 1e3
        for n in ("integral", "write", "log"):
            row[f"{n}, k over k / 2"] = took[f"{n} this"] / took[f"{n} half"]
        rows.append(row)
    report("Growth with k, float32", rows, "ratios_growth")
    draw(rows)


def by(
    sets: tuple[torch.Tensor, torch.Tensor], method: Literal["subsets", "integral"]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The library, by one of its methods."""
    return swor.leave_one_out(*sets, second_order=True, method=method)


def draw(rows: list[dict[str, object]]) -> None:
    """Time against k at batch 16, beside k²."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for method, colour in (("subsets", "#D55E00"), ("integral", "#0072B2")):
        points = [(r["k"], r[f"{method} ms"]) for r in rows if f"{method} ms" in r]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=method)
    ks = [32, 1000]
    last = rows[-1]["integral ms"]
    axes.plot(ks, [last * (k / 1000) ** 2 for k in ks], ":", color="grey", label="k²")
    axes.set(xscale="log", yscale="log", xlabel="k", ylabel="ms", title="All ratios of 16 sets")
    axes.legend()
    figure.savefig(OUTPUT / "ratios_growth.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1_000_000, help="the largest batch")
    given = parser.parse_args()
    torch.set_num_threads(1)
    against_the_textbook()
    rule()
    linear(given.batch)
    growth()


if __name__ == "__main__":
    main()
