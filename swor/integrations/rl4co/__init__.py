"""Distinct solutions of rl4co's policies, and training and evaluation with them."""

from swor.integrations.rl4co._checks import check_version

check_version()

from swor.integrations.rl4co.evaluation import best_of_k  # noqa: E402
from swor.integrations.rl4co.model import SolutionModel  # noqa: E402
from swor.integrations.rl4co.solutions import (  # noqa: E402
    Solutions,
    ancestral_solutions,
    beam_solutions,
    sample_solutions,
)
from swor.integrations.rl4co.training import (  # noqa: E402
    EstimatedLoss,
    PolicyGradient,
    solution_loss,
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
