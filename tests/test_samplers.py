"""Samplers: what they draw has the law that they promise."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, permutations, product

import pytest
import torch
from problems import chi_square, log_probabilities, seeded
from torch.distributions import Bernoulli, Categorical, Independent, OneHotCategorical

import swor
from swor.samplers import factorized, stream
from swor.samplers.beams import search
from swor.samplers.race import perturb_children

DRAWS = 40_000


@dataclass
class TwoLevels:
    """Sequences of one or two symbols over {a, b, end}: a, b, or end; then a, b, or end."""

    first: torch.Tensor  # (3,)
    second: torch.Tensor  # (3, 3), by the first symbol
    batch: tuple[int, ...] = ()
    length: int = 2
    end: int = 2

    def start(self):
        return None

    def step(self, state):
        if state is None:
            return self.first.expand(*self.batch, 1, 3), state
        return self.second[state], state

    def select(self, state, parents, symbols):
        return symbols

    def sequences(self):
        """Every sequence and its log-probability."""
        out = {(2, 2): self.first[2]}
        out |= {(i, j): self.first[i] + self.second[i, j] for i in (0, 1) for j in range(3)}
        return out


def two_levels(batch=(), dtype=torch.float64):
    return TwoLevels(
        log_probabilities(3, seed=1, dtype=dtype).requires_grad_(),
        log_probabilities(3, 3, seed=2, dtype=dtype),
        batch,
    )


def ordered_law(log_p: dict, k):
    """The probability of every ordered sample of k keys."""
    keys = list(log_p)
    law = {}
    for b in permutations(keys, k):
        values = torch.stack([log_p[key] for key in b]).detach()
        others = [log_p[key].detach() for key in keys if key not in b]
        rest = torch.stack(others).logsumexp(0) if others else torch.tensor(-torch.inf).double()
        law[b] = swor.log_prob_ordered(values, rest).exp().item()
    return law


def tuples(value):
    """Hashable samples from values (draws, k) or (draws, k, n)."""
    if value.dim() == 2:
        return [tuple(row) for row in value.tolist()]
    return [tuple(tuple(x) for x in row) for row in value.tolist()]


def check_order_and_sets(value, log_p: dict, k):
    observed = Counter(tuples(value))
    law = ordered_law(log_p, k)
    assert chi_square(observed, law, len(value)) > 1e-3
    sets = Counter(frozenset(b) for b in tuples(value))
    set_law = {}
    for s in combinations(log_p, k):
        values = torch.stack([log_p[key] for key in s]).detach()
        set_law[frozenset(s)] = swor.log_prob_set(values).exp().item()
    assert chi_square(sets, set_law, len(value)) > 1e-3


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("small", [256, 1])  # 1: the outcomes race in blocks
def test_gumbel_top_k_has_the_law_of_drawing_one_by_one(k, small, monkeypatch):
    monkeypatch.setattr("swor.samplers.children.SMALL", small)
    n = 6 if small > 1 else 20 * (k + 1)
    log_probs = log_probabilities(n, scale=2.0)
    sample = swor.gumbel_top_k(log_probs.expand(DRAWS, n), k, generator=seeded())
    if small > 1:
        check_order_and_sets(sample.value, dict(enumerate(log_probs)), k)
    else:
        for j in range(min(k, 2)):  # the first, and the second given the first
            likeliest = int(log_probs.argmax())
            rows = sample.value if j == 0 else sample.value[sample.value[:, 0] == likeliest]
            rest = log_probs.clone()
            if j:
                rest[likeliest] = -torch.inf
            law = dict(enumerate(rest.softmax(-1).tolist()))
            assert chi_square(Counter(rows[:, j].tolist()), law, len(rows)) > 1e-3


@pytest.mark.parametrize("n, k", [(7, 3), (500, 1), (500, 7), (5, 5), (301, 300)])
def test_what_is_not_selected_makes_up_the_rest(n, k):
    log_probs = log_probabilities(2, 3, n, scale=3.0)
    sample = swor.gumbel_top_k(log_probs, k, generator=seeded())
    assert sample.value.shape == sample.log_p.shape == (2, 3, k)
    assert (sample.value.sort(-1).values.diff(dim=-1) > 0).all()
    assert torch.equal(sample.log_p, log_probs.gather(-1, sample.value))
    outside = log_probs.scatter(-1, sample.value, -torch.inf).logsumexp(-1)
    assert torch.allclose(sample.log_rest, outside, rtol=0, atol=1e-12)
    assert (sample.kappa == -torch.inf).all() if k == n else sample.kappa.isfinite().all()


@pytest.mark.parametrize("draw", ["gumbel_top_k", "blocks", "beams", "stream", "fused"])
def test_kappa_has_the_law_of_the_next_in_the_race(draw, monkeypatch):
    """E[e^{-kappa}] is the mean time of the (k+1)-th finisher, Σ 1 / remaining mass."""
    if draw == "blocks":
        monkeypatch.setattr("swor.samplers.children.SMALL", 1)
    log_probs = log_probabilities(3, 3, scale=0.7)
    joint = factorized.fuse(log_probs, 3).squeeze(0)
    k = 2
    model = swor.Factorized(log_probs.expand(DRAWS, 3, 3))
    if draw in ("gumbel_top_k", "blocks"):
        sample = swor.gumbel_top_k(joint.expand(DRAWS, 27), k, generator=seeded())
        log_p, log_rest, kappa = sample.log_p, sample.log_rest, sample.kappa
    else:
        ways = {
            "beams": lambda: search(model, k, generator=seeded()),
            "stream": lambda: model._of_stream(k, seeded()),
            "fused": lambda: model._of_search(k, seeded()),
        }
        _, log_p, log_rest, kappa = ways[draw]()
    t1, t2, t3 = 1.0, -torch.expm1(log_p[:, 0]), log_rest.exp()
    expected = (1 / t1 + 1 / t2 + 1 / t3).mean()
    times = torch.exp(-kappa)
    z = (times.mean() - expected) / (times.std() / math.sqrt(DRAWS))
    assert abs(z) < 4


@pytest.mark.parametrize("way", ["_of_table", "_of_stream", "_of_search"])
def test_all_ways_through_a_product_have_the_same_law(way):
    log_probs = log_probabilities(2, 3, scale=1.5)
    model = swor.Factorized(log_probs.expand(DRAWS, 2, 3))
    found = getattr(model, way)(2, seeded())
    law = {x: log_probs[0, x[0]] + log_probs[1, x[1]] for x in product(range(3), repeat=2)}
    check_order_and_sets(found.value, law, 2)
    total = torch.logaddexp(found.log_p.logsumexp(-1), found.log_rest)
    assert total.abs().max() <= 1e-12


def test_a_stream_goes_on_where_its_draws_repeat():
    """Nearly all mass on one outcome: every stream falls short, and the search completes it."""
    log_probs = torch.tensor([[0.0, -20.0, -25.0], [0.0, -21.0, -22.0]]).double().log_softmax(-1)
    found = swor.Factorized(log_probs.expand(5000, 2, 3))._of_stream(3, seeded())
    law = {x: log_probs[0, x[0]] + log_probs[1, x[1]] for x in product(range(3), repeat=2)}
    check_order_and_sets(found.value, law, 3)
    for row, rest in zip(found.value[:5].tolist(), found.log_rest[:5], strict=True):
        others = [law[x] for x in law if list(x) not in row]
        assert torch.allclose(rest, torch.stack(others).logsumexp(0), rtol=0, atol=1e-12)


def test_mass_outside_a_sample_of_a_product_does_not_cancel():
    log_probs = (torch.tensor([[0.0, -30.0], [0.0, -35.0], [0.0, -60.0]]).double()).log_softmax(-1)
    value = torch.tensor([[[0, 0, 0], [1, 0, 0]]])
    log_p = swor.Factorized(log_probs[None]).log_prob(value)
    outside = stream.log_mass_outside(log_probs[None], value, log_p)
    expected = [x for x in product(range(2), repeat=3) if list(x) not in value[0].tolist()]
    exact = swor.Factorized(log_probs).log_prob(torch.tensor(expected)).logsumexp(-1)
    assert torch.allclose(outside, exact, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_stochastic_beam_search_over_sequences_of_different_lengths(k):
    model = two_levels((DRAWS,))
    sample = swor.stochastic_beam_search(model, k, generator=seeded())
    law = {key: p.detach() for key, p in two_levels().sequences().items()}
    check_order_and_sets(sample.value, law, k)
    exact = [[law[x].item() for x in row] for row in tuples(sample.value[:500])]
    exact = torch.tensor(exact, dtype=torch.float64)
    assert torch.allclose(sample.log_p[:500], exact, rtol=0, atol=1e-12)
    total = torch.logaddexp(sample.log_p.logsumexp(-1), sample.log_rest)
    assert total.abs().max() <= 1e-12


def test_sequences_carry_gradient():
    model = two_levels((4,))
    sample = swor.stochastic_beam_search(model, 2, generator=seeded())
    (gradient,) = torch.autograd.grad(sample.log_p.sum(), model.first)
    expected = torch.zeros(3).double()
    for row in tuples(sample.value):
        for x in row:
            expected[x[0]] += 1
    assert torch.equal(gradient, expected)


def test_ancestral_sampling_of_sequences():
    model = two_levels((DRAWS,))
    sample = swor.ancestral_sample(model, 1, generator=seeded())
    law = {key: p.exp().item() for key, p in two_levels().sequences().items()}
    observed = Counter(row[0] for row in tuples(sample.value))
    assert chi_square(observed, law, DRAWS) > 1e-3
    assert sample.log_rest is None and sample.kappa is None
    many = swor.ancestral_sample(two_levels((3,)), 5, generator=seeded())
    assert many.value.shape == (3, 5, 2) and many.log_p.shape == (3, 5)


def test_beam_search_finds_the_likeliest():
    model = two_levels((1,))
    sample = swor.beam_search(model, 7)
    assert (sample.log_p.diff(dim=-1) <= 0).all()
    assert sample.kappa is None and (sample.log_rest == -torch.inf).all()
    likeliest = max(two_levels().sequences().items(), key=lambda item: item[1])[0]
    assert tuple(sample.value[0, 0].tolist()) == likeliest


def test_twenty_variables_of_ten_categories():
    log_probs = torch.full((50, 20, 10), 0.1).log()
    sample = swor.stochastic_beam_search(swor.Factorized(log_probs), 4, generator=seeded())
    assert torch.allclose(sample.log_p, torch.tensor(-20 * math.log(10)), atol=1e-4)
    weights = swor.unordered_set(sample)
    assert torch.allclose(weights.weight, torch.tensor(0.25), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_mass", [0.0, -46.0, -1000.0])
def test_children_have_exactly_their_parents_maximum(dtype, log_mass):
    log_probs = log_probabilities(1000, 30, scale=5.0, dtype=dtype)
    mass = torch.full((1000,), log_mass, dtype=dtype)
    g = mass + torch.randn(1000, generator=seeded(), dtype=dtype)
    children = perturb_children(log_probs, mass, g, seeded(1))
    assert torch.equal(children.amax(-1), g)
    assert not children.isnan().any()


def test_masked_symbols_are_never_taken():
    log_probs = log_probabilities(4, 5, 3)
    log_probs[..., 1:, 2] = -torch.inf
    log_probs = log_probs.log_softmax(-1)
    for k in (1, 5, 3 * 2**4):
        value = swor.stochastic_beam_search(swor.Factorized(log_probs), k).value
        assert (value[..., 1:] < 2).all()


def test_with_replacement_draws_independently():
    log_probs = log_probabilities(4)
    sample = swor.with_replacement(log_probs.expand(DRAWS, 4), 2, generator=seeded())
    law = {
        (i, j): (log_probs[i] + log_probs[j]).exp().item() for i, j in product(range(4), repeat=2)
    }
    assert chi_square(Counter(tuples(sample.value)), law, DRAWS) > 1e-3


@pytest.mark.parametrize("m", [1, 2, 3])
def test_top_k_and_sample_sums_the_likeliest(m):
    log_probs = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05]).double().log()
    sample = swor.top_k_and_sample(log_probs.expand(DRAWS, 5), 3, m=m, generator=seeded())
    top = [1, 3, 2][: 3 - m]
    assert (sample.value[:, : 3 - m] == torch.tensor(top)).all()
    left = log_probs.clone()
    left[top] = -torch.inf
    law = dict(enumerate(left.softmax(-1).tolist()))
    assert chi_square(Counter(sample.value[:, -1].tolist()), law, DRAWS) > 1e-3
    weights = swor.deterministic_sum_and_sample(sample).weight
    expected = torch.cat([log_probs[top].exp(), left.exp().sum().expand(m) / m])
    assert torch.allclose(weights, expected.expand_as(weights), rtol=0, atol=1e-12)


def test_top_k_and_sample_chooses_how_many_to_sum():
    """Of the choices of |C|, the one that minimises the mass per sample (Liu et al. 2019)."""
    log_probs = torch.stack(
        [torch.full((6,), 1 / 6), torch.tensor([0.9, 0.02, 0.02, 0.02, 0.02, 0.02])]
    )
    sample = swor.top_k_and_sample(log_probs.double().log(), 4, m="auto", generator=seeded())
    summed = (sample.log_q == 0).sum(-1)
    for row, count in zip(log_probs.double(), summed, strict=True):
        ordered = row.sort(descending=True).values
        shares = [(1 - ordered[:c].sum()) / (4 - c) for c in range(4)]
        assert shares[count] <= min(shares) + 1e-12
    assert summed.tolist()[1] == 1


def test_top_k_and_sample_sums_what_the_caller_gives():
    log_probs = log_probabilities(2, 5)
    memory = torch.tensor([[4], [0]])
    sample = swor.top_k_and_sample(log_probs, 3, m=2, summed=memory, generator=seeded())
    assert torch.equal(sample.value[:, :1], memory)
    assert not (sample.value[:, 1:] == memory).any()


DISTRIBUTIONS = [
    (Categorical(logits=torch.zeros(3, 4)), 3),
    (OneHotCategorical(logits=torch.zeros(2, 3, 4)), 3),
    (Bernoulli(logits=torch.zeros(5)), 2),
    (Independent(Bernoulli(logits=torch.zeros(3, 4)), 1), 6),
    (Independent(Bernoulli(logits=torch.zeros(2, 3)), 2), 6),
    (Independent(Categorical(logits=torch.zeros(2, 3, 4)), 1), 5),
    (Independent(OneHotCategorical(logits=torch.zeros(2, 3, 4)), 1), 5),
    (Independent(Independent(Categorical(logits=torch.zeros(2, 3, 4)), 1), 1), 5),
    (Independent(Categorical(logits=torch.zeros(6, 4)), 0), 4),
]


@pytest.mark.parametrize("dist, k", DISTRIBUTIONS, ids=lambda x: str(x)[:40])
@pytest.mark.parametrize("replacement", [False, True])
def test_samples_have_the_encoding_of_the_distribution(dist, k, replacement):
    sample = swor.sample(dist, k, replacement=replacement, generator=seeded())
    own = dist.sample()
    b = len(dist.batch_shape)
    assert sample.value.shape == (*dist.batch_shape, k, *dist.event_shape)
    assert sample.value.dtype == own.dtype
    log_prob = dist.log_prob(sample.value.movedim(b, 0)).movedim(0, -1)
    assert torch.allclose(sample.log_p, log_prob, atol=1e-5)
    if not replacement:
        flat = sample.value.reshape(-1, k, max(1, math.prod(dist.event_shape)))
        assert all(len({tuple(x) for x in row}) == k for row in flat.tolist())


def test_the_same_seed_gives_the_same_sample():
    log_probs = log_probabilities(3, 700)
    model = swor.Factorized(log_probabilities(3, 20, 10))
    draws = {
        "gumbel": lambda g: swor.gumbel_top_k(log_probs, 5, generator=g),
        "independent": lambda g: swor.with_replacement(log_probs, 5, generator=g),
        "top k": lambda g: swor.top_k_and_sample(log_probs, 5, m=3, generator=g),
        "beams": lambda g: swor.stochastic_beam_search(model, 5, generator=g),
        "ancestral": lambda g: swor.ancestral_sample(model, 5, generator=g),
        "sequences": lambda g: swor.stochastic_beam_search(two_levels((3,)), 3, generator=g),
    }
    for draw in draws.values():
        first, again, other = draw(seeded(3)), draw(seeded(3)), draw(seeded(4))
        assert torch.equal(first.value, again.value)
        assert not torch.equal(first.value, other.value)


@pytest.mark.parametrize("batch", [(0,), (2, 0)])
def test_empty_batches(batch):
    log_probs = torch.zeros(*batch, 600).log_softmax(-1)
    for k in (1, 3, 12):
        sample = swor.gumbel_top_k(log_probs, k)
        assert swor.unordered_set(sample).loss(torch.zeros(*batch, k)).shape == batch
    model = swor.Factorized(torch.zeros(*batch, 20, 10).log_softmax(-1))
    for draw in (swor.stochastic_beam_search, swor.ancestral_sample, swor.beam_search):
        assert draw(model, 3).value.shape == (*batch, 3, 20)
    assert swor.with_replacement(log_probs, 3).value.shape == (*batch, 3)
    assert swor.top_k_and_sample(log_probs, 3, m="auto").value.shape == (*batch, 3)


def test_a_mask_may_leave_whole_blocks_empty():
    """A thousand outcomes of which two are possible: most blocks of the race have no mass."""
    log_probs = torch.full((1000,), -torch.inf)
    log_probs[[3, 700]] = math.log(0.5)
    sample = swor.gumbel_top_k(log_probs.expand(50, 1000), 2, generator=seeded())
    assert (sample.value.sort(-1).values == torch.tensor([3, 700])).all()
    assert (sample.log_rest == -torch.inf).all() and (sample.kappa == -torch.inf).all()


def test_a_search_over_many_categories_that_all_beams_share():
    log_probs = log_probabilities(2, 3, 300, scale=2.0)
    found = search(swor.Factorized(log_probs), 5, generator=seeded())
    drawn = {tuple(x) for x in found.value[0].tolist()}
    assert len(drawn) == 5
    log_p = log_probs.gather(-1, found.value.mT).sum(-2)
    assert torch.allclose(found.log_p, log_p, rtol=0, atol=1e-12)
    total = found.log_p.exp().sum(-1) + found.log_rest.exp()
    assert torch.allclose(total, torch.ones_like(total), rtol=0, atol=1e-12)


@pytest.mark.parametrize("small", [256, 1])
def test_left_over_samples_have_no_mass_where_values_cannot_be_looked_at(small, monkeypatch):
    for module in ("checks", "samplers.categorical"):
        monkeypatch.setattr(f"swor.{module}.may_inspect", lambda *_: False)
    monkeypatch.setattr("swor.samplers.children.SMALL", small)
    log_probs = torch.full((43,), -torch.inf)
    log_probs[[3, 42]] = torch.tensor([0.25, 0.75]).log()
    sample = swor.gumbel_top_k(log_probs.expand(50, 43), 5, generator=seeded())
    assert torch.equal((sample.log_p > -torch.inf).sum(-1), torch.full((50,), 2))
    assert torch.allclose(sample.log_p.exp().sum(-1), torch.ones(50))
