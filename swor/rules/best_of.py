"""The best of m: the expected maximum of several draws, and its gradient, from distinct samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from swor._checks import check_count, check_policy, may_inspect
from swor.math._best_of.weights import BestOfWeights, best_of_variance, best_of_weights
from swor.math._murthy import murthy
from swor.math.ratios import complete
from swor.types import Sample, Scheme, check_numbers, possible_values, require, score


@dataclass(frozen=True, eq=False)
class BestOf:
    r"""The best of m independent draws, estimated from distinct samples; see :func:`best_of`.

    Attributes:
        sample: drawn without replacement, with $k \ge m$ outcomes.
        m: the number of draws of which the best one counts.
        largest: whether the largest or the smallest value is the best one.
    """

    sample: Sample
    m: int
    largest: bool = True

    def mean(self, f: Tensor) -> Tensor:
        r"""Return the estimate of the expected best of m draws.

        $$\hat J_m = \sum_s w_s f_s$$

        It is an average of the given values with weights that sum to 1, so it never leaves their range.
        For rewards of 0 and 1 it is an unbiased estimate of pass@m.

        Args:
            f: the value of every sample, (*batch, k). If it carries gradient, so does the estimate.

        Returns:
            (*batch,)
        """
        f = possible_values("f", f, self.sample.log_p, "the sample")
        return first_order_loss(f, self._find(f, None, gradient=False), self.sample, None)

    def loss(self, f: Tensor, *, log_p: Tensor | None = None) -> Tensor:
        r"""Return the surrogate loss, to be averaged over the batch and differentiated.

        $$L = \sum_s w_s f_s + c_s (\log p_s - \bot(\log p_s))$$

        Its value estimates $J_m$ and its gradient estimates $\nabla J_m$. Minimise it if $f$ is a cost, and
        its negative if $f$ is a reward. Differentiate it once: unlike those of :meth:`swor.Weights.loss`,
        its higher derivatives are not estimates of those of $J_m$.

        Args:
            f: the value of every sample, (*batch, k). If it carries gradient, the pathwise term is
                included: the gradient of the outcome that attains the maximum, or of the more probable
                one of two that tie for it.
            log_p: the log-probability of every sample, (*batch, k), under the policy to differentiate,
                if this is not the distribution sampled from. Each of the m draws is then corrected by
                its ratio.

        Returns:
            (*batch,)
        """
        f = possible_values("f", f, self.sample.log_p, "the sample")
        target = target_policy(self.sample, log_p)
        return first_order_loss(f, self._find(f, log_p, gradient=True), self.sample, target)

    def coefficient(self, f: Tensor) -> Tensor:
        """Return the coefficients $c_s$ of the gradients of log-probabilities in ``loss``, (*batch, k)."""
        f = possible_values("f", f, self.sample.log_p, "the sample")
        return self._find(f, None, gradient=True).coefficient

    def variance(self, f: Tensor) -> Tensor:
        r"""Return an unbiased estimate of the variance of :meth:`mean`, from a sample of 2m or more.

        $$\hat V = \hat J_m^2 - E[f(x_1, \dots, x_m) \, f(x_{m+1}, \dots, x_{2m}) \mid S]$$

        The second term is an unbiased estimate of $J_m^2$, because the two blocks of draws are
        independent. For $m = 1$ this is :func:`swor.murthy_variance`. Its square root is a standard
        error. It is 0 if the sample is the whole domain.

        Args:
            f: the value of every sample, (*batch, k).

        Returns:
            (*batch,)
        """
        f = possible_values("f", f, self.sample.log_p, "the sample")
        check_room(self.sample, 2 * self.m, "the variance of the best of m, which takes 2 m draws")
        if self.m == 1:
            return murthy(self.sample.log_p, self.sample.log_rest, f)
        signed = f if self.largest else -f
        found = best_of_variance(self.sample.log_p, self.sample.log_rest, signed, self.m)
        return found.to(torch.promote_types(f.dtype, self.sample.log_p.dtype))

    def _find(self, f: Tensor, log_p: Tensor | None, *, gradient: bool) -> BestOfWeights:
        sign = 1.0 if self.largest else -1.0
        log_q, log_rest = self.sample.log_p, self.sample.log_rest
        found = best_of_weights(log_q, log_rest, sign * f, self.m, log_p=log_p, gradient=gradient)
        return BestOfWeights(found.weight, sign * found.coefficient)


def first_order_loss(
    f: Tensor, found: BestOfWeights, sample: Sample, log_p: Tensor | None
) -> Tensor:
    """Return Σ w f + c (log p − ⊥ log p), (*batch,); without the second term if there is no log p."""
    value = (found.weight * f).sum(-1)
    if log_p is not None:
        value = value + (found.coefficient * score(log_p)).sum(-1)
    return value.to(torch.promote_types(f.dtype, sample.log_p.dtype))


def target_policy(sample: Sample, log_p: Tensor | None) -> Tensor:
    """Return the log-probabilities of the policy to differentiate: the one sampled from, by default."""
    if log_p is None:
        return sample.log_p
    check_numbers("log_p", log_p, sample.log_p, "the sample")
    check_policy(log_p)
    return log_p


def best_of(sample: Sample, m: int, *, largest: bool = True) -> BestOf:
    r"""The expected best of m independent draws, and its gradient, from distinct samples.

    The target is $J_m = E[\max(f(x_1), \dots, f(x_m))]$ with independent $x_i \sim p$, and the sample has
    $k \ge m$ outcomes.

    With $Z(U, n)$ the probability that $n$ independent draws have exactly the support $U$, and with set
    probabilities as in :func:`swor.leave_one_out`,

    $$\hat J_m = \sum_{U \subseteq S} Z(U, m) \, \frac{p^{D \setminus U}(S \setminus U)}{p(S)} \,
    \max_{u \in U} f_u,$$

    and the gradient estimate $\sum_s c_s \nabla \log p_s$ has

    $$c_s = m \, p_s \sum_{U \subseteq S} \frac{p^{D \setminus (U \cup s)}(S \setminus (U \cup s))}{p(S)}
    \left( Z(U, m - 1) \max_{u \in U \cup s} f_u - Z(U, m) \max_{u \in U} f_u \right),$$

    whose last term is a built-in baseline.

    Use it to train for, or to evaluate, the best of several attempts: pass@m of a language model or of a
    program synthesiser, the best of several tours, a list of recommendations. Value and gradient are
    unbiased. Their variance is never above that of :func:`swor.best_of_independent` from $k$ independent
    samples with the corresponding baseline, "centred", or "fewer" if $k = m$: they are its conditional
    expectations given the set of distinct outcomes. At $m = 1$ it is :func:`swor.unordered_set`.

    The baseline needs $k \ge m + 1$. At $k = m$ the best of $m - 1$ draws takes its place, and at
    $k = m = 1$ there is none.

    Args:
        sample: drawn without replacement, (*batch, k).
        m: the number of draws of which the best one counts, from 1 to k, or any number if the sample is the
            whole domain.
        largest: True for the largest value, False for the smallest.

    Returns:
        An object with ``mean(f)``, ``loss(f, *, log_p=None)`` and ``variance(f)``, each (*batch,).

    >>> import swor, torch
    >>> logits = torch.tensor([2.0, 1.0, 0.0, 0.0], requires_grad=True)
    >>> s = swor.gumbel_top_k(logits.log_softmax(-1), 3)
    >>> reward = (s.value == 3).float()  # one answer in four is right
    >>> loss = -best_of(s, 2).loss(reward)  # raise the chance that one of two is right
    >>> loss.backward()

    References:
        | Evaluating Large Language Models Trained on Code (Chen et al., 2021)
        | https://arxiv.org/abs/2107.03374

        | Pass@K Policy Optimization: Solving Harder Reinforcement Learning Problems
        | (Walder and Karkhanis, 2025)
        | https://arxiv.org/abs/2505.15201
    """
    require(sample, "best_of", Scheme.WITHOUT_REPLACEMENT)
    check_count("m", m)
    check_room(sample, m, "the best of m draws")
    return BestOf(sample, m, largest)


def check_room(sample: Sample, draws: int, what: str, cure: str = "lower m") -> None:
    """Check that there are as many possible outcomes as draws, or that they are the whole domain."""
    log_p, log_rest = sample.log_p, sample.log_rest
    found = f"the sample has k = {sample.k} outcomes"
    enough = sample.k >= draws
    if may_inspect(log_p, log_p if log_rest is None else log_rest):
        outside = complete(log_p.detach(), None)[1] if log_rest is None else log_rest
        possible = (log_p > -torch.inf).sum(-1)
        few = (possible < draws) & (outside > -torch.inf)
        if enough and bool(few.any()):
            least = int(possible[few].min())
            found = f"an element of the batch has only {least} outcomes of positive probability"
        enough = not bool(few.any())
    if not enough:
        raise ValueError(
            f"{found}; expected at least {draws} for {what}. Draw a larger sample, or {cure}."
        )
