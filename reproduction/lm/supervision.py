"""A confident start: a language model that learns from right answers before it learns from rewards."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from reproduction.harness.errors import UserError
from reproduction.harness.task import seeded
from reproduction.lm.problem import Sorting
from reproduction.lm.settings import LMSettings
from swor.integrations.transformers import completion_log_probs

CHECK_EVERY = 5  # steps between validations
MOST_STEPS = 20_000


def supervise(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    problem: Sorting,
    settings: LMSettings,
    solved: Callable[[], float],
) -> int:
    r"""Train on right answers until enough prompts are solved.

    $$L = -\log p(\text{answer} \mid \text{prompt})$$

    The prompts depend on the seed alone, and the steps on no setting of the estimator, so all estimators
    start from the same weights and the same state of the optimiser.

    Args:
        model: the language model.
        optimizer: of its parameters, which goes on to learn from rewards.
        problem: has prompts and answers.
        settings: of the run; ``supervised_until`` is the share of prompts to solve.
        solved: returns the share of validation prompts that the model solves.

    Returns:
        The number of steps.
    """
    from accelerate import PartialState
    from rich.progress import Progress

    until = settings.supervised_until
    with Progress(disable=not PartialState().is_main_process) as progress:
        bar = progress.add_task("solved by supervision", total=until)
        for step in range(0, MOST_STEPS, CHECK_EVERY):
            share = solved()
            progress.update(bar, completed=share)
            if share >= until:
                return step
            for number in range(step, step + CHECK_EVERY):
                _step(model, optimizer, problem, settings, number)
    raise UserError(
        f"supervised_until is {until}, but after {MOST_STEPS} steps on right answers the model solves "
        f"{solved():.2f} of the prompts; expected as many. Give a lower share or a larger model."
    )


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    problem: Sorting,
    settings: LMSettings,
    step: int,
) -> None:
    device = next(model.parameters()).device
    generator = seeded(settings.seed, "supervision", step)
    prompts = problem.prompts(settings.batch_size, generator).to(device)
    loss = -completion_log_probs(model, prompts, problem.answers(prompts)).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
