"""Table 1 in Markdown: log-variances with standard errors, beside those of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.harness.appearance import appearance
from reproduction.harness.statistics import minus
from reproduction.harness.tables import markdown
from reproduction.vae.model import uniform
from reproduction.vae.published import Domain, paper_log_variance
from reproduction.vae.settings import METHODS, VAEVariance
from reproduction.vae.variance import PARTS, Comparison, Measurement, warm_up_steps

EQUAL = ("encoder, equal k", "encoder, equal evaluations")
COLUMNS = ("estimator", "k (evaluations)", *PARTS, "paper, both", *EQUAL)


def variance_table(
    rows: Sequence[Comparison],
    measured: Sequence[Measurement],
    domain: Domain,
    settings: VAEVariance,
) -> str:
    """Return the log-variances on one model, with standard errors, beside the paper's numbers."""
    by_key = {(m.estimator, m.k, m.part): m for m in measured}
    lines = [_line(row, by_key, domain) for row in rows]
    return f"{markdown(COLUMNS, lines)}\n{_notes(rows, domain, settings)}"


def _line(
    row: Comparison, by_key: dict[tuple[str, int, str], Measurement], domain: Domain
) -> list[str]:
    parts = [by_key[row.estimator, row.paper_k, part] for part in PARTS]
    others = [by_key[row.estimator, k, "encoder"] for k in (row.equal_k, row.equal_evaluations)]
    published = paper_log_variance(row.estimator, domain)
    return [
        appearance(row.estimator).label,
        f"{row.paper_k} ({parts[0].evaluations})",
        *map(_cell, parts),
        "" if published is None else f"{published:.2f}",
        *(f"{_cell(m)}, k = {m.k} ({m.evaluations})" for m in others),
    ]


def _notes(rows: Sequence[Comparison], domain: Domain, settings: VAEVariance) -> str:
    """Say how the gradients were measured, and what was trained for how long before."""
    minibatch = "a new" if settings.new_minibatch else "a fixed"
    kl = "inside" if settings.kl_in_cost else "outside"
    notes = (
        f"Measured with {minibatch} minibatch of {settings.records} records and the KL {kl} the cost; "
        "the paper's with a new minibatch of 200 records and the KL inside the cost.\n"
    )
    of = f" of {settings.warm_up_records} new images" if settings.warm_up_records else ""
    for steps, labels in _learned(rows, domain, settings).items():
        notes += f"Trained on the model for {steps} steps{of}: {'; '.join(labels)}.\n"
    return notes


def _learned(
    rows: Sequence[Comparison], domain: Domain, settings: VAEVariance
) -> dict[int, list[str]]:
    """Return the labels of the estimators that learn, by the steps of their warm-up."""
    learned: dict[int, list[str]] = {}
    for row in rows:
        if METHODS[row.estimator].learns:
            made = METHODS[row.estimator].make(uniform(domain.dims, domain.categories))
            steps = warm_up_steps(made, settings)
            learned.setdefault(steps, []).append(appearance(row.estimator).label)
    return learned


def _cell(measurement: Measurement) -> str:
    return log_variance_text(measurement.log_variance, measurement.standard_error)


def log_variance_text(value: float, error: float) -> str:
    """Format a log-variance with its standard error, with three digits if the error is small.

    >>> log_variance_text(7.1812, 0.0041), log_variance_text(-4.7812, 0.0312)
    ('7.181 ± 0.004', '−4.78 ± 0.03')
    """
    digits = 2 if error >= 0.01 else 3
    return minus(f"{value:.{digits}f} ± {error:.{digits}f}")
