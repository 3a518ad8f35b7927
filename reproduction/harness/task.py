"""The task that a run trains, and the place in the run that all randomness is a function of."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from reproduction.harness.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Place:
    """Where in training a process is: its batch and its noise depend on nothing else.

    Attributes:
        seed: seed of the run.
        epoch: counted from 0.
        step: within the epoch, counted from 0.
        rank: number of this process.
        processes: number of processes, which share a batch between them.
    """

    seed: int
    epoch: int
    step: int
    rank: int = 0
    processes: int = 1

    def share(self, batch: Tensor) -> Tensor:
        """Return the records of a batch that belong to this process; every process has equally many.

        >>> Place(seed=0, epoch=0, step=0, rank=1, processes=2).share(torch.arange(6))
        tensor([1, 3, 5])
        """
        if len(batch) % self.processes:
            raise UserError(
                f"a batch of {len(batch)} cannot be shared equally by {self.processes} processes; "
                "expected a multiple. Change the batch size or the number of processes."
            )
        return batch[self.rank :: self.processes]


def seeded(*place: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator for one place and purpose, such as ``seeded(seed, "order", epoch)``.

    >>> a, b = seeded(0, "noise", 1), seeded(0, "noise", 2)
    >>> a.initial_seed() == b.initial_seed()
    False
    """
    digest = hashlib.blake2b(repr(place).encode(), digest_size=7).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "big"))


class Task(ABC, Generic[Batch]):
    """A model, an optimiser, batches, a loss and a validation.

    Attributes:
        model: holds every parameter that is trained; its weights are initialised by the task, from
            the seed.
        optimizer: of these parameters.
        steps: number of steps of an epoch.
        examples: number of records in a step, over all processes, for the throughput.
        model_settings: the settings that the model is built from, to be kept beside its weights; None
            for none.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    steps: int
    examples: int
    model_settings: DataclassInstance | None = None

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    @abstractmethod
    def batch(self, place: Place) -> Batch:
        """Return the share of a process in the batch of a step, which depends on the place alone."""

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar to minimise and the metrics, all of which are means over the records."""

    @abstractmethod
    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """Return metrics on the validation set. The generator starts from the same seed every time."""

    def begin(self) -> dict[str, float]:
        """Prepare the first step, and return metrics of it; not when a run is resumed.

        Every process calls it, and the main one shares its weights afterwards.
        """
        return {}

    def end_epoch(self, epoch: int, generator: torch.Generator) -> dict[str, float]:
        """Finish an epoch before its validation, and return metrics of it.

        Every process calls it, with the same generator and the same weights.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """Return the rest of the state for a checkpoint: tensors, numbers, strings and dicts of these."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
