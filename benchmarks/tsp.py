"""A training step of the unordered set estimator beside one of RLOO.

    python benchmarks/tsp.py [--nodes 20] [--batch-size 128] [--k 4] [--repeats 20]

The steps alternate on the same instances, and the ratio is that of the median processor times. Then:
where the time goes; log-probabilities by a second, teacher-forced pass or gathered from a search with
gradient; and the step written plainly, with a decoder that projects every query and attends anew in
every step.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from measure import report, timings
from torch import Tensor

import swor
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.policy import TourPolicy
from reproduction.tsp.problem import random_instances, tour_length
from swor.samplers.sequence_model import log_prob

ONE_PASS, STEPPING = "log p in one pass, with backward", "log p step by step, with backward"
FORWARD = "log p step by step, no gradient"


class Stepping:
    """A policy without its one-pass log-probability: a search steps through the tours again."""

    def __init__(self, policy: TourPolicy) -> None:
        self.length, self.end = policy.length, policy.end
        self.start, self.step, self.select = policy.start, policy.step, policy.select


def detached(policy: TourPolicy) -> TourPolicy:
    """The same tables, as leaves of the graph."""
    names = ("first", "last", "readout")
    leaves = {name: getattr(policy, name).detach().requires_grad_() for name in names}
    return replace(policy, **leaves)


def plain_sample(model: AttentionModel, instances: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Independent tours and their log-probabilities, with gradient in every step."""
    decoder, heads = model.decoder, model.settings.heads
    h = model.encoder(instances).repeat_interleave(k, 0)
    lanes, nodes, width = h.shape
    split = lambda x: x.unflatten(-1, (heads, -1)).transpose(1, 2)  # noqa: E731
    keys, values, final = decoder.project_nodes(h).chunk(3, -1)
    graph = decoder.project_graph(h.mean(1))
    closed = torch.zeros(lanes, nodes, dtype=torch.bool)
    rows, total, tour = torch.arange(lanes), torch.zeros(lanes), []
    for _ in range(nodes):
        first, last = (h[rows, tour[0]], h[rows, tour[-1]]) if tour else decoder.placeholder
        query = graph + decoder.project_first(first) + decoder.project_last(last)
        scores = split(query.unsqueeze(1)) @ split(keys).mT / math.sqrt(width / heads)
        scores = scores.masked_fill(closed[:, None, None], -torch.inf)
        glimpse = (scores.softmax(-1) @ split(values)).transpose(1, 2).flatten(-2)
        logits = (decoder.project_glimpse(glimpse) @ final.mT).squeeze(1) / math.sqrt(width)
        logits = (model.settings.clip * torch.tanh(logits)).masked_fill(closed, -torch.inf)
        log_probs = logits.log_softmax(-1)
        node = torch.multinomial(log_probs.detach().exp(), 1).squeeze(-1)
        total = total + log_probs[rows, node]
        closed = closed.scatter(1, node.unsqueeze(1), True)
        tour.append(node)
    return torch.stack(tour, -1).unflatten(0, (-1, k)), total.unflatten(0, (-1, k))


def timed(steps: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each, taken in turns."""
    took = timings(steps, repeats=repeats, seconds=300.0)
    return {name: timing.median for name, timing in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"nodes": 20, "batch-size": 128, "k": 4, "repeats": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    noise = torch.Generator().manual_seed(0)
    model, k = AttentionModel(), given.k
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = random_instances(given.batch_size, given.nodes, generator=noise)

    def learn(sample: swor.Sample, rule) -> None:
        optimizer.zero_grad()
        rule(sample).loss(tour_length(x, sample.value)).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def plainly() -> swor.Sample:
        value, log_p = plain_sample(model, x, k)
        return swor.Sample(value, log_p, scheme=swor.Scheme.WITH_REPLACEMENT)

    beams, paths = swor.stochastic_beam_search, swor.ancestral_sample
    seconds = timed(
        {
            "unordered set": lambda: learn(beams(model(x), k, generator=noise), swor.unordered_set),
            "RLOO": lambda: learn(paths(model(x), k, generator=noise), swor.rloo),
            "RLOO, written plainly": lambda: learn(plainly(), swor.rloo),
        },
        given.repeats,
    )
    base = seconds["RLOO"]
    size = f"{given.batch_size} instances of {given.nodes} nodes, k = {k}, float32"
    rows: list[dict[str, object]] = [
        {
            "step": name,
            "ms": 1e3 * taken,
            "over RLOO": taken / base,
            "instances/s": given.batch_size / taken,
        }
        for name, taken in seconds.items()
    ]
    report(f"Training step, {size}", rows, "tsp")

    policy = detached(model(x))
    with torch.no_grad():
        sample = beams(policy, k, generator=noise)
    cost = tour_length(x, sample.value)

    @torch.no_grad()
    def stepping_without_gradient() -> None:
        log_prob(Stepping(policy), sample.value)

    def without_gradient(draw: Callable[..., swor.Sample]) -> None:
        with torch.no_grad():
            draw(policy, k, generator=noise)

    parts = timed(
        {
            "encoder and tables": lambda: model(x),
            "encoder and tables, with backward": lambda: model(x).readout.sum().backward(),
            "stochastic beam search": lambda: without_gradient(beams),
            "ancestral sampling": lambda: without_gradient(paths),
            "unordered set weights": lambda: swor.unordered_set(sample).loss(cost),
            ONE_PASS: lambda: policy.log_prob(sample.value).sum().backward(),
            STEPPING: lambda: log_prob(Stepping(policy), sample.value).sum().backward(),
            FORWARD: stepping_without_gradient,
            "clipping and Adam": lambda: (
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
                optimizer.step(),
            ),
        },
        given.repeats,
    )
    whole = seconds["unordered set"]
    rows = [{"part": n, "ms": 1e3 * t, "share of the step": t / whole} for n, t in parts.items()]
    report(f"Where the time of an unordered set step goes, {size}", rows, "tsp-shares")
    search = parts["stochastic beam search"]
    second_pass = search + parts[ONE_PASS]
    gathered = search - parts[FORWARD] + parts[STEPPING]  # the steps of the search, with gradient
    print(
        f"log p by a second pass after a search without gradient: {1e3 * second_pass:.1f} ms; "
        f"gathered from a search with gradient: {1e3 * gathered:.1f} ms"
    )


if __name__ == "__main__":
    main()
