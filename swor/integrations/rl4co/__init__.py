"""Distinct solutions of rl4co's policies, and training and evaluation with them."""

from swor.integrations.rl4co._checks import check_version

check_version()

from swor.integrations.rl4co.evaluation import best_of_k  # noqa: E402
from swor.integrations.rl4co.loss import EstimatedLoss, solution_loss  # noqa: E402
from swor.integrations.rl4co.model import SolutionModel  # noqa: E402
from swor.integrations.rl4co.module import PolicyGradient  # noqa: E402
from swor.integrations.rl4co.solutions import (  # noqa: E402
    Solutions,
    ancestral_solutions,
    beam_solutions,
    sample_solutions,
)

__all__ = [
    "EstimatedLoss",
    "PolicyGradient",
    "SolutionModel",
    "Solutions",
    "ancestral_solutions",
    "beam_solutions",
    "best_of_k",
    "sample_solutions",
    "solution_loss",
]
