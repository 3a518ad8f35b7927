"""A small task for the tests of the training loop; run as a script it trains in a folder."""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from reproduction.harness import training
from reproduction.harness.settings import MAY_CHANGE, TrainingSettings
from reproduction.harness.task import Place, Task, seeded
from swor.estimators.baselines import batch_mean

SCRIPT = Path(__file__)
PATHS = os.pathsep.join(str(folder) for folder in SCRIPT.parents[1:3])  # tests, and what they test
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}


class Toy(Task[Tensor]):
    """Least squares with noise; raises a signal in the given step, to see what happens."""

    def __init__(self, *, noise: float = 1.0, strike: tuple[int, int] | None = None) -> None:
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
        generator = seeded("weights")
        for parameter in self.model.parameters():
            nn.init.normal_(parameter, generator=generator)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.noise, self.strike, self.calls = noise, strike, 0
        self.steps, self.examples = 7, 8
        self.best = 0.0
        self.killed_in_validation = False
        self.drawn: list[float] = []

    def batch(self, place: Place) -> Tensor:
        generator = seeded(place.seed, "records", place.epoch, place.step)
        return place.share(torch.randn(8, 3, dtype=torch.float64, generator=generator))

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls += 1
        if self.strike and self.calls == self.strike[0]:
            os.kill(os.getpid(), self.strike[1])
        drawn = torch.randn(len(batch), dtype=torch.float64, generator=generator)
        self.drawn.append(float(drawn[0]))
        error = self.model(batch).squeeze(-1) - batch.sum(-1) - self.noise * drawn
        others = batch_mean(drawn.unsqueeze(-1), group=distributed.group.WORLD)
        return error.square().mean(), {"bias": error.mean(), "others": others.mean()}

    def validate(self, generator: torch.Generator) -> dict[str, float]:
        if self.killed_in_validation:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = torch.randn(8, 3, dtype=torch.float64, generator=generator)
        return {"loss": float((self.model(batch).squeeze(-1) - batch.sum(-1)).square().mean())}

    def end_epoch(self, epoch: int, generator: torch.Generator) -> dict[str, float]:
        self.best += float(torch.rand(1, generator=generator)) + epoch
        return {"best": self.best}

    def state(self) -> dict[str, float]:
        return {"best": self.best}

    def load_state(self, state: dict[str, float]) -> None:
        self.best = state["best"]


class Plain(Toy):
    """The same without batch statistics, one step of gradient descent at rate 1."""

    def __init__(self) -> None:
        super().__init__(noise=0.0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        generator = seeded("weights")
        for parameter in self.model.parameters():
            nn.init.normal_(parameter, generator=generator)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.steps = 1


@dataclass(frozen=True, kw_only=True)
class ToySettings(TrainingSettings):
    """Settings of a run of the toy."""

    epochs: int = field(default=10, metadata=MAY_CHANGE)


SETTINGS = ToySettings(epochs=3, log_every=4, checkpoint_every=5, cpu=True)


def train(task: Task[Tensor], folder: Path, settings: ToySettings, *, resume: bool = False) -> bool:
    """Train a task that has been made."""
    return training.train(lambda: task, folder, settings, resume=resume)


def stop(number: int, frame: object) -> None:
    """Say so, and take much longer than a test."""
    print("stopped", flush=True)
    time.sleep(600)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--kill-rank", default="0")
    parser.add_argument("--kill-in-validation", action="store_true")
    parser.add_argument("--kill-in-save", action="store_true")
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--one-step", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rank = os.environ.get("RANK", "0")
    killed = given.kill_at and rank == given.kill_rank
    if given.one_step:
        task: Toy = Plain()
        train(task, given.folder, ToySettings(epochs=1))  # the machine may have no GPU
    else:
        task = Toy(strike=(given.kill_at, signal.SIGKILL) if killed else None)
        task.killed_in_validation = given.kill_in_validation
        if given.stop_at:
            task.strike = (given.stop_at, signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, stop)
        if given.kill_in_save:
            os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        train(task, given.folder, SETTINGS, resume=given.resume)
    torch.save(
        {"drawn": task.drawn, "model": task.model.state_dict()}, given.folder / f"rank-{rank}.pt"
    )


if __name__ == "__main__":
    main()
