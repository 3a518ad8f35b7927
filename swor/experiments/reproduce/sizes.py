"""How large the experiments are: the paper's sizes, and a few minutes' worth."""

from __future__ import annotations

from dataclasses import dataclass

from swor.experiments.runs.images import Name

Curves = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Sizes:
    """Sizes of all experiments.

    Attributes:
        repeats: gradients behind each number of the Monte Carlo check of Figure 1.
        data: data sets of the VAE.
        dims: latent variables of the VAE.
        curves: estimators that train a VAE, with their k.
        epochs: of the VAE.
        batch_size: of the VAE.
        keep_every: epochs between the models on which the gradient variance is measured.
        repetitions: gradients per estimator on the last of these models.
        repetitions_before: on the others.
        control_steps: that train the control variate of RELAX before it is measured.
        all_estimators: measure every estimator that applies, and not only those of Table 1.
        seeds: of all training runs.
        nodes: of the travelling salesman problem.
        tours: in a batch: k tours of tours / k instances.
        steps: of the travelling salesman.
        validate_every: steps between validations.
        validation_size: number of validation instances.
        learning_rate: of the travelling salesman.
    """

    repeats: int
    data: tuple[Name, ...]
    dims: tuple[int, ...]
    curves: Curves
    epochs: int
    batch_size: int
    keep_every: int
    repetitions: int
    repetitions_before: int
    control_steps: int
    all_estimators: bool
    seeds: tuple[int, ...]
    nodes: int
    tours: int
    steps: int
    validate_every: int
    validation_size: int
    learning_rate: float


REFERENCE = ("reinforce", 4)
"""What trains the model on which the gradient variance of all estimators is measured."""

SHORT = Sizes(
    repeats=2000,
    data=("digits",),
    dims=(2,),
    curves=(
        REFERENCE,
        ("unordered_set", 4),
        ("sum_and_sample_shared_sampled_baseline", 4),
        ("reinforce_shared_sampled_baseline", 1),
        ("straight_through", 1),
        ("relax", 1),
        ("arsm", 1),
    ),
    epochs=100,
    batch_size=100,
    keep_every=50,
    repetitions=100,
    repetitions_before=40,
    control_steps=200,
    all_estimators=True,
    seeds=(0,),
    nodes=10,
    tours=256,
    steps=300,
    validate_every=30,
    validation_size=1000,
    learning_rate=5e-4,
)

FULL = Sizes(
    repeats=10_000,
    data=("mnist", "binarized-mnist"),
    dims=(2, 20),
    curves=(
        REFERENCE,
        ("reinforce", 8),
        ("unordered_set", 4),
        ("unordered_set", 8),
        ("sum_and_sample_shared_sampled_baseline", 4),
        ("sum_and_sample_shared_sampled_baseline", 8),
        ("reinforce_shared_sampled_baseline", 1),
        ("straight_through", 1),
        ("relax", 1),
        ("arsm", 1),
    ),
    epochs=1000,
    batch_size=200,
    keep_every=100,
    repetitions=1000,
    repetitions_before=1000,
    control_steps=500,
    all_estimators=False,
    seeds=(0, 1),
    nodes=20,
    tours=512,
    steps=250_000,
    validate_every=2500,
    validation_size=10_000,
    learning_rate=1e-4,
)
