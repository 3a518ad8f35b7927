r"""ARM, DisARM, ARSM and CARMS: several outcomes whose noise is coupled.

For binary variables with $u \sim U(0, 1)^n$ and logits φ, both $b = 1[u < \sigma(\varphi)]$ and
$\tilde b = 1[1 - u < \sigma(\varphi)]$ have the distribution p; ARM and DisARM compare their costs. ARSM
(augment-REINFORCE-swap-merge) compares the outcomes of all swaps of two entries of Dirichlet noise, for
variables with any number of categories.

CARMS has k outcomes that avoid each other, by a Dirichlet copula. For $d \sim \text{Dirichlet}(1, \dots, 1)$
with k entries, every $u_m = (1 - d_m)^{k - 1}$ is uniform, and two of them are negatively dependent, with
the joint distribution function

$$P(u_m \le a, u_n \le b) = \max\bigl(0, a^{1 / (k-1)} + b^{1 / (k-1)} - 1\bigr)^{k-1}.$$

The categories of a variable fill the unit interval in a random order, in which every pair of categories is
equally often at its two ends, and the outcomes are those at $u_1, \dots, u_k$. So $P_{ij}$, the probability
of the outcomes i and j, is positive for all pairs. It is the mean over all orders of the mass of a rectangle.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_generator
from swor.estimators._variables import binary, evaluate, loss_with_gradient, variables_of
from swor.math._logspace import wide_dtype, without_autocast
from swor.samplers._race import TINY, exponential_like, gumbel_like
from swor.samplers.products import Factorized
from swor.types import Cost


def arm(f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None) -> Tensor:
    r"""ARM (augment-REINFORCE-merge): an antithetic estimator for binary variables.

    $$g_i = (f(\tilde b) - f(b)) \Bigl(u_i - \frac12\Bigr), \qquad
    b = 1[u < \sigma(\varphi)], \quad \tilde b = 1[1 - u < \sigma(\varphi)]$$

    This is the gradient with respect to the logit $\varphi_i$; the noise u is uniform. The value is the mean
    of f over all outcomes. The estimator is unbiased and uses 2k evaluations. Prefer :func:`disarm`, whose
    variance is never larger.

    Args:
        f: the cost, from values (*batch, 2k, *event) to (*batch, 2k).
        dist: Bernoulli or another distribution of two categories, or Independent of these.
        k: the number of pairs.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> arm(lambda x: x, dist, 1)  # antithetic: exactly one of the two outcomes is 1
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000])

    References:
        | ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary Networks
        | (Yin and Zhou, 2019a)
        | https://arxiv.org/abs/1807.11143
    """
    variables = binary("arm", dist, k)
    pair = _antithetic(f, variables, k, generator)
    by_logit = -pair.difference.unsqueeze(-1) * (pair.u - 0.5)
    return _binary_loss(variables, pair, by_logit)


def disarm(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""DisARM, also called U2G: ARM averaged over the noise given the outcomes, for binary variables.

    $$g_i = \frac12 (f(b) - f(\tilde b)) (b_i - \tilde b_i) \, \sigma(|\varphi_i|), \qquad
    b = 1[u < \sigma(\varphi)], \quad \tilde b = 1[1 - u < \sigma(\varphi)]$$

    This is the gradient with respect to the logit $\varphi_i$; the noise u is uniform. The estimator is
    unbiased and uses 2k evaluations. Use it for many binary variables.

    Args:
        f: the cost, from values (*batch, 2k, *event) to (*batch, 2k).
        dist: Bernoulli or another distribution of two categories, or Independent of these.
        k: the number of pairs.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits = torch.zeros((), requires_grad=True)
    >>> disarm(lambda x: x, torch.distributions.Bernoulli(logits=logits), 1).backward()
    >>> logits.grad
    tensor(0.2500)

    References:
        | DisARM: An Antithetic Gradient Estimator for Binary Latent Variables (Dong et al., 2020)
        | https://arxiv.org/abs/2006.10680

        | Probabilistic Best Subset Selection via Gradient-Based Optimization (Yin et al., 2020)
        | https://arxiv.org/abs/2006.06448
    """
    variables = binary("disarm", dist, k)
    pair = _antithetic(f, variables, k, generator)
    chance = torch.sigmoid(_logits(variables).abs()).unsqueeze(-2)
    by_logit = 0.5 * pair.difference.unsqueeze(-1) * pair.disagreement * chance
    return _binary_loss(variables, pair, by_logit)


class _Pair(NamedTuple):
    u: Tensor  # (*batch, k, n)
    disagreement: Tensor  # b − b̃, (*batch, k, n)
    difference: Tensor  # f(b) − f(b̃), (*batch, k)
    cost: Tensor  # (*batch, 2k)


def _logits(variables: Factorized) -> Tensor:
    return (variables.log_probs[..., 1] - variables.log_probs[..., 0]).detach()


def _antithetic(f: Cost, variables: Factorized, k: int, generator: torch.Generator | None) -> _Pair:
    logits = _logits(variables).unsqueeze(-2)
    shape = (*variables.batch, k, variables.length)
    check_generator(generator)
    u = torch.rand(shape, generator=generator, dtype=logits.dtype, device=logits.device)
    u = u.clamp(min=TINY[u.dtype])
    noise = torch.logit(u)
    b, opposite = noise < logits, -noise < logits
    cost = evaluate(variables, f, torch.cat([b, opposite], dim=-2).long())
    first, second = cost.detach().chunk(2, dim=-1)
    return _Pair(u, b.to(u.dtype) - opposite.to(u.dtype), first - second, cost)


def _binary_loss(variables: Factorized, pair: _Pair, by_logit: Tensor) -> Tensor:
    return loss_with_gradient(variables, pair.cost, torch.stack([-by_logit, by_logit], dim=-1))


def arsm(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""ARSM: an estimator from pairwise swaps of Dirichlet noise, for categorical variables.

    $$g_m = \sum_j \Bigl(f(x^{m j}) - \frac1c \sum_{m'} f(x^{m' j})\Bigr) \Bigl(\frac1c - \pi_j\Bigr),
    \qquad x^{m j} = \arg\min_i \pi^{m j}_i e^{-\varphi_i}$$

    This is the gradient with respect to the logit $\varphi_m$. The noise is
    $\pi \sim \text{Dirichlet}(1, \dots, 1)$, and $\pi^{m j}$ is π with the entries m and j swapped. In a
    product of variables, each variable has its own π, and the same entries are swapped in all of them.
    Every $x^{m j}$ has the distribution p, so the mean of f over all of them estimates E[f].

    The estimator is unbiased and uses k (c (c − 1) / 2 + 1) evaluations, independently of the number of
    variables. Use it for products of variables with few categories, if f is cheap to evaluate.

    Args:
        f: the cost, from values (*batch, k', *event) to (*batch, k').
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of draws of π.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> arsm(lambda x: x.float(), dist, 2).shape
    torch.Size([5])

    References:
        | ARSM: Augment-REINFORCE-Swap-Merge Estimator for Gradient Backpropagation Through
        | Categorical Variables (Yin et al., 2019b)
        | https://arxiv.org/abs/1905.01413
    """
    variables = variables_of(dist, k)
    c = variables.categories
    log_probs = variables.log_probs.detach().unsqueeze(-3)
    log_probs = log_probs.expand(*variables.batch, k, variables.length, c)
    log_pi = torch.log_softmax(-gumbel_like(log_probs, generator), -1)  # log of Dirichlet
    orders, which = swaps(c, log_pi.device)
    x = (log_probs.unsqueeze(-2) - log_pi[..., orders]).argmax(-1)  # (*batch, k, n, swaps)
    cost = evaluate(variables, f, x.mT.flatten(-3, -2))
    table = cost.detach().unflatten(-1, (k, len(orders)))[..., which]  # (*batch, k, m, j)
    centred = (table - table.mean(-2, keepdim=True)).to(log_pi.dtype)
    with without_autocast(log_pi):
        gradient = (1.0 / c - log_pi.exp()) @ centred.mT
    return loss_with_gradient(variables, cost, gradient)


def swaps(c: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the identity and all swaps of two of c entries, and which of them swaps m and j.

    Returns:
        The permutations, (c (c − 1) / 2 + 1, c), and a table (c, c) with the row of the swap of m and j.
    """
    m, j = torch.triu_indices(c, c, offset=1, device=device)
    row = torch.arange(1, len(m) + 1, device=device)
    orders = torch.arange(c, device=device).repeat(len(m) + 1, 1)
    orders[row, m], orders[row, j] = j, m
    which = torch.zeros(c, c, dtype=torch.long, device=device)
    which[m, j] = which[j, m] = row
    return orders, which


def carms(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""CARMS: an antithetic version of RLOO for categorical variables.

    $$g_i = \frac{1}{k (k - 1)} \sum_m \sum_{n \ne m} \frac{\pi(x_{m i}) \, \pi(x_{n i})}{P(x_{m i}, x_{n i})}
    \, (f(x_m) - f(x_n)) \, (x_{m i} - \pi_i)$$

    This is the gradient with respect to the logits of variable i; x is one-hot there, and a pair of equal
    categories has no term. The k outcomes of a variable are negatively dependent, and P is the exact
    probability of a pair of them, so the estimator is unbiased. It uses k evaluations; for k = 1 it is
    REINFORCE without a baseline. Time and memory grow like the cube of the number of categories. Use it for
    variables of few categories.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> carms(lambda x: x, dist, 2)  # antithetic: exactly one of the two outcomes is 1
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000])

    References:
        | CARMS: Categorical-Antithetic-REINFORCE Multi-Sample Gradient Estimator
        | (Dimitriev and Zhou, 2021)
        | https://arxiv.org/abs/2110.14002
    """
    variables = variables_of(dist, k)
    if k == 1:
        index = variables.independent(1, generator)
        cost = evaluate(variables, f, index)
        coefficient = cost.detach().unsqueeze(-1)
    else:
        lower, upper = edges(variables, k)
        index = _draw(lower, upper, k, generator)
        cost = evaluate(variables, f, index.mT)
        coefficient = _coefficients(variables, lower, upper, index, cost.detach()).mT
        index = index.mT
    gradient = variables.one_hot(index) * coefficient.to(variables.log_probs.dtype).unsqueeze(-1)
    return loss_with_gradient(variables, cost, gradient.sum(-3, keepdim=True))


def orders(c: int, device: torch.device) -> Tensor:
    """Return orders of c categories, (c (c − 1) / 2, c): each pair is at the ends of one of them.

    After the first category, the others follow each other cyclically, up to the last.
    """
    if c == 1:
        return torch.zeros(1, 1, dtype=torch.long, device=device)
    first, last = torch.triu_indices(c, c, offset=1, device=device)
    cycle = (last.unsqueeze(-1) + torch.arange(1, c + 1, device=device)) % c
    others = cycle[cycle != first.unsqueeze(-1)].view(-1, c - 1)
    return torch.cat([first.unsqueeze(-1), others], dim=-1)


def edges(variables: Factorized, k: int) -> tuple[Tensor, Tensor]:
    r"""Return the roots $a^{1 / (k-1)}$ of the lower and upper ends of all categories in all orders.

    Returns:
        Both (*batch, n, orders, c), in double precision.
    """
    log_probs = variables.log_probs.detach()
    order = orders(variables.categories, log_probs.device)
    p = log_probs.to(wide_dtype(log_probs.device)).exp()[..., order]
    upper = p.cumsum(-1)
    upper = (upper / upper[..., -1:]).pow(1.0 / (k - 1))
    lower = F.pad(upper[..., :-1], (1, 0))
    place = order.argsort(-1).expand_as(upper)
    return lower.gather(-1, place), upper.gather(-1, place)


def _draw(lower: Tensor, upper: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Draw k outcomes of every variable, as indices, (*batch, n, k)."""
    *lead, number, c = upper.shape
    check_generator(generator)
    chosen = torch.randint(number, (*lead, 1, 1), generator=generator, device=upper.device)
    chosen = chosen.expand(*lead, 1, c)
    e = exponential_like(upper[..., 0, :1].expand(*lead, k), generator)
    total = e.sum(-1, keepdim=True)
    u = (total - e) / total  # 1 − d, the root of a uniform number
    u = u.clamp(0.0, 1.0 - torch.finfo(u.dtype).eps).unsqueeze(-1)
    low, high = (x.gather(-2, chosen) for x in (lower, upper))  # (*batch, n, 1, c)
    return ((low <= u) & (u < high)).to(torch.uint8).argmax(-1)


def pair_probabilities(lower: Tensor, upper: Tensor, k: int, i: Tensor, j: Tensor) -> Tensor:
    """Return the probabilities that two of k outcomes are i and j, all (*batch, n, pairs), from the edges."""
    *lead, number, _ = upper.shape

    def ends(category: Tensor) -> tuple[Tensor, Tensor]:
        at = category.unsqueeze(-2).expand(*lead, number, category.shape[-1])
        return lower.gather(-1, at), upper.gather(-1, at)

    def copula(a: Tensor, b: Tensor) -> Tensor:
        return (a + b - 1.0).clamp(min=0.0).pow(k - 1)

    (a, b), (c, d) = ends(i), ends(j)
    return (copula(b, d) - copula(a, d) - copula(b, c) + copula(a, c)).mean(-2)


def _coefficients(
    variables: Factorized, lower: Tensor, upper: Tensor, index: Tensor, cost: Tensor
) -> Tensor:
    """Return what multiplies the score of every outcome of every variable, (*batch, n, k)."""
    k = index.shape[-1]
    first, second = torch.triu_indices(k, k, offset=1, device=index.device)
    i, j = index[..., first], index[..., second]
    p = variables.log_probs.detach().to(upper.dtype).exp()
    joint = pair_probabilities(lower, upper, k, i, j)
    possible = (i != j) & (joint > 0.0)
    ratio = p.gather(-1, i) * p.gather(-1, j) / joint.where(possible, 1.0)
    difference = (cost[..., first] - cost[..., second]).to(ratio.dtype).unsqueeze(-2)
    term = torch.where(possible, ratio * difference, 0.0) / (k * (k - 1))
    total = torch.zeros_like(index, dtype=term.dtype)
    return total.index_add(-1, first, term).index_add(-1, second, -term)
