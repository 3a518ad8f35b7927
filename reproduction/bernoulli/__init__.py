"""The Bernoulli toy problem: exact variances (Figure 1) and the optimisation."""
