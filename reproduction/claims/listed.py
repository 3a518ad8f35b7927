"""The list of claims: those of the paper in its order, then those beyond it."""

from __future__ import annotations

from functools import partial

from reproduction.claims.claim import Claim, Measure
from reproduction.claims.criteria import exact, sequences, tours, vae

RUNS = "The 95 % interval of the difference of runs with the same seed is {}."
POSITIVE, ALL_POSITIVE = RUNS.format("above 0"), RUNS.format("above 0 for all of them")
GAP = "Logarithm of the gap in the last quarter of the steps. "
OTHERS = {
    "rloo": "RLOO (REINFORCE with replacement)",
    "sum_and_sample_shared_sampled_baseline": "stochastic sum-and-sample",
    "reinforce_rollout": "REINFORCE with a greedy rollout",
}
"""What the paper's Figure 3 calls the estimators that it says are outperformed."""
BEGINNING = "Figure 3, the beginning of training"
DOMAINS = {2: "small domain (10²)", 20: "large domain (10²⁰)"}


def table1(dims: int) -> tuple[Claim, ...]:
    """Return the claims of Table 1 on a domain."""
    where, name = f"Table 1, {DOMAINS[dims]}", f"variance-{dims}"
    return (
        Claim(
            where,
            "Apart from ARSM and RELAX, no estimator has a lower variance than the unordered set estimator.",
            "For each of the others, the 95 % interval of its log-variance minus that of the unordered "
            "set estimator is above −0.1.",
            (name,),
            vae.lowest,
        ),
        Claim(
            where,
            "Apart from ARSM and RELAX, the estimators are in the order of the paper.",
            "Each pair of estimators whose log-variances differ by more than 0.1 in the paper is in the same "
            "order here, and the 95 % interval of its difference excludes 0.",
            (name,),
            partial(vae.same_order, dims=dims),
        ),
        Claim(
            where,
            "ARSM and RELAX have the highest variances.",
            "The 95 % intervals of their log-variance minus that of REINFORCE without a baseline, which has "
            "the next highest variance in the paper, are above 0. (The paper's code for both is incorrect.)",
            (f"{name}-all",),
            vae.highest,
        ),
    )


def outperforms(
    other: str, where: str, criterion: str, tables: tuple[str, ...], measure: Measure
) -> Claim:
    """Return the claim that the unordered set estimator is better than another one on tours."""
    statement = f"The unordered set estimator outperforms {OTHERS[other]}."
    return Claim(where, statement, criterion, tables, partial(measure, other=other))


def figure3(where: str, table: str) -> tuple[Claim, ...]:
    """Return the claims of Figure 3 on runs from one kind of start."""
    par = Claim(
        where,
        "It is on par with RISK, which is biased.",
        GAP + RUNS.format("within 10 %"),
        (table,),
        partial(tours.tours_on_par, other="risk"),
    )
    better = (
        outperforms(name, where, GAP + POSITIVE, (table,), tours.shorter_tours) for name in OTHERS
    )
    return (*better, par)


def continued(rate: str) -> tuple[Claim, ...]:
    """Return the claims on training that continues from the authors' policy with a learning rate."""
    where = f"Tours, continued from the authors' policy, rate {rate}"
    tables, final = (f"tsp-continued-{rate}",), "Gap of the final models on the same instances. "
    par = Claim(
        where,
        "It is on par with RISK, which is biased.",
        final + RUNS.format("within 10 % of the gap"),
        tables,
        partial(tours.final_tours_on_par, other="risk"),
    )
    better = (
        outperforms(name, where, final + POSITIVE, tables, tours.shorter_final_tours)
        for name in ("rloo", "reinforce_rollout")
    )
    return (*better, par)


PAPER = (
    Claim(
        "Theorems 1 and 2",
        "The unordered set estimator is unbiased, with and without its built-in baseline.",
        "The bias of the gradient on five outcomes, summed over all samples, is below 1e-12 for every "
        "rule that is said to be unbiased.",
        ("rules",),
        exact.unbiased,
    ),
    Claim(
        "Theorems 1 and 4",
        "Without a baseline, its variance is not above that of sum-and-sample and of a single sample.",
        "The exact variance of the other ÷ its own on five outcomes is at least 1 for every k from 2 on.",
        ("rules",),
        partial(
            exact.never_above,
            ours="unordered_set_no_baseline",
            others=("single_sample", "sum_and_sample"),
        ),
    ),
    Claim(
        "Figure 1",
        "It is the only estimator with the lowest, or a comparable, variance in both regimes.",
        "Its largest ratio to the lowest exact variance, over both η and 2 to 7 evaluations, is below 10, "
        "and that of any other estimator is not.",
        ("variances",),
        exact.smallest_ratio,
    ),
    Claim(
        "Section 5.1",
        "With k = 3, its trajectory cannot be distinguished from that of the exact gradient.",
        "At every step, the mean loss of 20 runs is within a tenth of the whole decrease of the exact "
        "loss, and the exact loss is between the 10th and the 90th percentile of the runs.",
        ("trajectory",),
        exact.follows_exact,
    ),
    *table1(2),
    *(
        Claim(
            where,
            "Sum-and-sample without a baseline has the same variance.",
            "The 95 % interval of the difference in log-variance is within 0.1.",
            (table,),
            partial(vae.tied, other="sum_and_sample"),
        )
        for where, table in (
            (f"Table 1, {DOMAINS[2]}, new minibatches", "variance-2-new-minibatches"),
            (f"Table 1, {DOMAINS[2]}, fixed minibatch", "variance-2-all"),
        )
    ),
    *table1(20),
    *(
        Claim(
            where,
            "The unordered set estimator trains on par with RLOO.",
            "−ELBO of the training images in the last epoch. " + RUNS.format("within 1 nat"),
            (table,),
            partial(vae.trains_on_par, dims=dims, other="rloo"),
        )
        for where, dims, table in (
            (f"Figure 2, {DOMAINS[2]}", 2, "curves-2"),
            (f"Figure 2, {DOMAINS[20]}", 20, "curves-20"),
            (f"Figure 2, {DOMAINS[20]}, 200 epochs", 20, "curves-20-long"),
        )
    ),
    Claim(
        "Figure 2, both domains",
        "Apart from RLOO, it outperforms each other estimator in at least one of the domains.",
        "−ELBO of the training images in the last common epoch, in the better domain of each. "
        + ALL_POSITIVE,
        ("curves-2", "curves-20"),
        vae.outperforms_in_one,
    ),
    *figure3(BEGINNING, "tsp"),
    Claim(
        BEGINNING,
        "It needs fewer instances than single-sample estimators.",
        "Logarithm of the gap at equal numbers of instances. " + ALL_POSITIVE,
        ("tsp",),
        tours.fewer_instances,
    ),
)

BEYOND = (
    Claim(
        "Theory",
        "With its baseline, its variance is not above that of RLOO with the same k.",
        "The exact variance of the other ÷ its own on five outcomes is at least 1 for every k from 2 on.",
        ("rules",),
        partial(exact.never_above, ours="unordered_set", others=("rloo",)),
    ),
    Claim(
        "Figure 1",
        "The enumerated variances are those of sampled gradients.",
        "The largest deviation is below the 95 % limit for the maximum of that many deviations. Two cases "
        "are left out, because their standard errors are not reliable: η = −4, where rare events carry the "
        "variance, and importance weights.",
        ("monte-carlo",),
        exact.sampled_as_enumerated,
    ),
    Claim(
        "Control variates, large domain (10²⁰)",
        "At 4 evaluations, tangents lower the variance of the encoder's gradient by a fifth or more.",
        "Log-variance of the unordered set estimator with tangents. It is lower than that of RLOO, and than "
        "that without tangents, by more than 0.2232, which is a fifth of the variance: both 95 % intervals "
        "of the differences in log-variance are above this number.",
        ("control-variates",),
        partial(vae.controlled, ours="unordered_set_tangents", margin=0.2232),
    ),
    *figure3("Tours, from a confident policy", "tsp-confident"),
    outperforms(
        "rloo",
        "Tours, from a second confident policy",
        GAP + POSITIVE,
        ("tsp-second-confident",),
        tours.shorter_tours,
    ),
    outperforms(
        "rloo",
        "Tours, from these two policies together",
        GAP
        + "The 95 % interval of the difference of runs with the same start and seed is above 0. It is "
        "about these two policies, not about others.",
        ("tsp-confident", "tsp-second-confident"),
        tours.shorter_tours_from_each,
    ),
    Claim(
        "Tours, gradient variance",
        "Where the policy is confident, its variance is below that of RLOO.",
        "The 95 % interval of the variance of RLOO ÷ its own is above 1 on the most confident policy.",
        ("tsp-variance", "tsp-policies"),
        tours.less_variance,
    ),
    Claim(
        "Tours, the authors' policy",
        "The variance of its gradient is below that of RLOO at the end of training.",
        "The 95 % interval of the variance of RLOO ÷ its own is above 1.",
        ("tsp-released", "tsp-released-policies"),
        tours.less_variance,
    ),
    Claim(
        "Tours, the authors' policy",
        "The best of four distinct tours is shorter than the best of 16 independent ones.",
        "The 95 % interval of the difference of the mean gaps is above 0. The interval treats the two as "
        "independent measurements, so it is too wide: both use the same instances.",
        ("best-of-k",),
        partial(tours.fewer_tours, few=4, many=16),
    ),
    *continued("1e-4"),
    *continued("1e-5"),
    *(
        Claim(
            where,
            "It reaches the target in fewer steps than RLOO.",
            f"Steps until {target}; a run that misses the target counts with its full length. {POSITIVE}",
            (table,),
            sequences.fewer_steps,
        )
        for where, table, target in (
            ("Language model, sorting", "lm", "95 % are solved greedily"),
            (
                "Language model, sparse reward",
                "lm-sparse",
                "75 % of samples are right (a target that was chosen after the runs)",
            ),
        )
    ),
    *(
        Claim(
            where,
            "Training for the best of four works better with distinct samples than with independent ones.",
            "Best of four in the last third of training. " + POSITIVE,
            (table,),
            partial(sequences.better_best, metric=metric),
        )
        for where, table, metric in (
            ("Best of four, tours", "best-of-tsp", "best_of_gap"),
            ("Best of four, sorting", "best-of-lm", "best_of_solved"),
        )
    ),
    *(
        Claim(
            "Routing with rl4co",
            f"After training with equally many solutions, its greedy solution is better than {whose}.",
            "Logarithm of the greedy cost in the last third of training, on TSP and CVRP. "
            + ALL_POSITIVE,
            ("rl4co",),
            partial(tours.ahead_of, other=other, problems=("tsp", "cvrp")),
        )
        for other, whose in (
            ("rl4co_pomo", "that of POMO without a given start"),
            ("rloo", "that of RLOO"),
        )
    ),
    Claim(
        "Routing with rl4co",
        "The best of its 8 distinct solutions is better than the best of 8 greedy starts of POMO.",
        "Logarithm of the cost of the best of 8 after training, on TSP and CVRP. " + ALL_POSITIVE,
        ("rl4co-best-of-k",),
        partial(
            tours.better_best_of_k,
            other="rl4co_pomo",
            ways={"unordered_set": "distinct", "rl4co_pomo": "multistart_greedy"},
            k=8,
            problems=("tsp", "cvrp"),
        ),
    ),
    Claim(
        "Pronunciation, gradient variance",
        "On a network that others trained, its variance is below that of RLOO.",
        "The 95 % interval of the variance of RLOO ÷ its own is above 1 for every k that was measured.",
        ("pronunciation-variance",),
        partial(sequences.less_variance_for_every_k, k=4),
    ),
    Claim(
        "Pronunciation, evaluation",
        "On the same words, pass@1 is more precise from 8 distinct samples than from 8 independent ones.",
        "The variances are those of repeated evaluations of the same 200 words. The 95 % interval of their "
        "ratio is above 1.",
        ("pronunciation-pass",),
        partial(sequences.more_precise, m=1),
    ),
    Claim(
        "Pronunciation, fine-tuning",
        "With equally many samples of each word, it trains better than RLOO.",
        "Probability that one draw is right, on held-out words. " + POSITIVE,
        ("pronunciation-training",),
        sequences.better_pronunciations,
    ),
)

CLAIMS = (*PAPER, *BEYOND)
