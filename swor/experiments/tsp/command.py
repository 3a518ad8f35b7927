"""The options of ``swor tsp``, and the settings that they make."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from swor.experiments.errors import UserError
from swor.experiments.tsp.estimators import TOUR_ESTIMATORS
from swor.experiments.tsp.settings import ModelSettings, TspSettings

TOURS = 512  # in a batch, however many of them are of the same instance

Name = Literal[
    "reinforce_rollout",
    "reinforce_batch_mean",
    "reinforce",
    "sum_and_sample",
    "unordered_set",
    "normalized_importance_weighted",
    "risk",
    "risk_beam_search",
]


@dataclass(frozen=True, kw_only=True)
class Tsp:
    """Train the Attention Model on random instances of the travelling salesman problem.

    What is left out is as in the paper, or as in the run that is resumed.
    """

    nodes: int | None = None
    """nodes of an instance; 20"""
    estimator: Name | None = None
    """of the gradient; unordered_set"""
    k: int | None = None
    """tours per instance; 4, or 1 for reinforce_rollout and reinforce_batch_mean"""
    steps: int | None = None
    """steps in all, a multiple of --validate-every; 250 000"""
    batch_size: int | None = None
    """instances in a step; 512 / k"""
    learning_rate: float | None = None
    """of Adam; 1e-4"""
    clip: float | None = None
    """largest norm of the gradient; 1"""
    seed: int | None = None
    """of the initial weights, the instances and the samples; 0"""
    validate_every: int | None = None
    """steps of an epoch: then the model is validated, and a rollout baseline replaced; 2500"""
    validation_size: int | None = None
    """number of validation instances; 10 000"""
    rollout_size: int | None = None
    """number of instances of the t-test that replaces a rollout baseline; 10 000"""
    checkpoint_every: int | None = None
    """steps between checkpoints; there is one after every epoch too; 1000"""
    width: int | None = None
    """of the embedding of a node; 128"""
    heads: int | None = None
    """of every attention; 8"""
    layers: int | None = None
    """of the encoder; 3"""
    hidden: int | None = None
    """width of the feed-forward part of a layer; 512"""
    cpu: bool = False
    """stay on the CPU; needed for several processes on a machine without an accelerator"""
    resume: Path | None = None
    """the folder of a run to continue"""
    out: Path | None = None
    """the folder to write to; a new one in runs/"""


def new_settings(command: Tsp) -> TspSettings:
    """The settings of a new run: what was given, and the paper's."""
    estimator = TOUR_ESTIMATORS[command.estimator or "unordered_set"]
    k = 1 if estimator.single else 4
    steps = 250_000 if command.steps is None else command.steps
    paper = TspSettings(
        estimator="reinforce_batch_mean" if estimator.single else "unordered_set",
        k=k,
        batch_size=max(TOURS // (command.k or k), 1),
        validate_every=max(min(2500, steps), 1),
        epochs=100,
    )
    return replace_given(paper, command)


def resumed_settings(command: Tsp) -> TspSettings:
    """The settings of the run that is resumed, and what was given anew."""
    if command.resume is None or command.out is not None:
        raise UserError(
            f"--resume and --out {command.out} were given; expected one of them, since a run "
            "continues in its own folder. Leave out --out."
        )
    return replace_given(read_settings(command.resume), command)


def replace_given(settings: TspSettings, command: Tsp) -> TspSettings:
    """The settings, with all that was given in their place."""
    model = replace(settings.model, **given(command, ModelSettings, but="clip"))
    changed = replace(settings, model=model, **given(command, TspSettings))
    if command.steps is None:
        return changed
    if command.steps < 1 or command.steps % changed.validate_every:
        raise UserError(
            f"steps is {command.steps}; expected a positive multiple of {changed.validate_every}, the "
            "steps between validations. Change one of --steps and --validate-every."
        )
    return replace(changed, epochs=command.steps // changed.validate_every)


def given(
    command: Tsp, kind: type[TspSettings | ModelSettings], *, but: str = ""
) -> dict[str, Any]:
    """The options that were given, among those that have the name of a field."""
    names = {field.name for field in fields(kind)} & {field.name for field in fields(command)}
    values = {name: getattr(command, name) for name in names - {but}}
    return {n: v for n, v in values.items() if v is not None and v is not False}


def read_settings(run: Path) -> TspSettings:
    """The settings of a run, from its ``settings.json``."""
    path = run / "settings.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["settings"]
        return TspSettings(**content | {"model": ModelSettings(**content["model"])})
    except FileNotFoundError as error:
        raise UserError(
            f"there is no {path}; expected the folder of a run of `swor tsp`."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not hold the settings of a run of `swor tsp` ({error}). Give the folder "
            "of such a run."
        ) from error
