"""The travelling salesman: the Attention Model, trained by the estimators of Figure 3."""

from swor.experiments.tsp.files import read_instances
from swor.experiments.tsp.model import AttentionModel, load_model, save_model
from swor.experiments.tsp.problem import (
    random_instances,
    tour_length,
    validation_instances,
)
from swor.experiments.tsp.settings import ModelSettings, TspSettings
from swor.experiments.tsp.solver import optimal_lengths

__all__ = [
    "AttentionModel",
    "ModelSettings",
    "TspSettings",
    "load_model",
    "optimal_lengths",
    "random_instances",
    "read_instances",
    "save_model",
    "tour_length",
    "validation_instances",
]
