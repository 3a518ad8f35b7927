"""Leave-one-out ratios, first and second order, over the textbook methods, and how they grow."""

from __future__ import annotations

from itertools import permutations

import torch
from measure import OUTPUT, report, timings

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


def against_the_textbook(batch: int = 1024) -> None:
    """How many times faster than brute force and the trapezoid rule."""
    rows: list[dict[str, object]] = []
    for k in (2, 4, 6, 8):
        sets = random_sets(batch, k)
        methods = {"ours": ours, "orderings": orderings, "trapezoid": trapezoid}
        took = timings({n: lambda f=f, s=sets: f(*s) for n, f in methods.items()}, repeats=100)
        exact = swor.leave_one_out(sets[0].double(), sets[1].double(), method="orderings")
        errors = {n: (f(*sets)[0].double() - exact).abs().max().item() for n, f in methods.items()}
        row: dict[str, object] = {"k": k, "ours ms": took["ours"].median * 1e3}
        for other in ("orderings", "trapezoid"):
            row[f"{other} / ours"] = took[other].median / took["ours"].median
        rows.append(row | {f"error {n}": e for n, e in errors.items()})
    report(f"First and second order ratios, batch {batch}, float32", rows, "ratios")


def growth() -> None:
    """How time and memory grow with k and with the batch, and the two methods beside each other."""
    rows: list[dict[str, object]] = []
    for batch, k in [(16, k) for k in (4, 8, 12, 16, 32, 64, 125, 250, 500, 1000)] + [
        *((1024, k) for k in (4, 8, 16, 64)),
        *((100_000, k) for k in (4, 8)),
    ]:
        sets = random_sets(batch, k)
        ways = {
            "integral": lambda s=sets: swor.leave_one_out(*s, second_order=True, method="integral")
        }
        if k <= 12:
            ways["subsets"] = lambda s=sets: swor.leave_one_out(
                *s, second_order=True, method="subsets"
            )
        took = timings(ways, repeats=7, seconds=10.0)
        rows.append({"batch": batch, "k": k} | {f"{n} ms": t.median * 1e3 for n, t in took.items()})
    report("Growth, float32", rows, "ratios_growth")
    draw(rows)


def draw(rows: list[dict[str, object]]) -> None:
    """Time against k at batch 16, beside k²."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for method, colour in (("subsets", "#D55E00"), ("integral", "#0072B2")):
        points = [
            (r["k"], r[f"{method} ms"]) for r in rows if r["batch"] == 16 and f"{method} ms" in r
        ]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=method)
    ks = [32, 1000]
    last = next(r["integral ms"] for r in reversed(rows) if r["batch"] == 16)
    axes.plot(ks, [last * (k / 1000) ** 2 for k in ks], ":", color="grey", label="k²")
    axes.set(xscale="log", yscale="log", xlabel="k", ylabel="ms", title="All ratios of 16 sets")
    axes.legend()
    figure.savefig(OUTPUT / "ratios_growth.png", dpi=150)


if __name__ == "__main__":
    torch.set_num_threads(1)
    against_the_textbook()
    growth()
