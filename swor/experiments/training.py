r"""The training loop of the experiments: $\theta \leftarrow \theta - \text{Adam}(\frac1P \sum_r \nabla L_r)$.

A :class:`swor.experiments.task.Task` says what is trained, on which batches and how it is
validated; :func:`train` does the rest, on one process or, started by ``torchrun`` or
``accelerate launch``, on P of them.

Batches and noise are functions of their place in the run (seed, epoch, step, process), so no two
processes draw the same noise, and a run that was killed continues from its last checkpoint to the
very numbers it would have reached: there is no state of a random generator to lose.

The records of a batch are split over the processes. The k samples of one record are not: weights and
baselines of samples without replacement depend on all k together, and k / P of them on each process
would be P separate samples, which may repeat each other. To use more processes, give each more records.

If a process dies, the others end with an error that says so, and the run is resumed from the last
checkpoint, which is whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from swor.experiments.checkpoint import Checkpoint, Position, keep_model, resume_from
from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder
from swor.experiments.interrupt import Interrupt
from swor.experiments.processes import Processes, together
from swor.experiments.progress import Bar
from swor.experiments.records import Meter, Records
from swor.experiments.task import Batch, Place, Task, Training, seeded

if TYPE_CHECKING:
    from accelerate import Accelerator

Made = TypeVar("Made")


def train(task: Task[Batch], folder: Path, settings: Training, *, resume: bool = False) -> bool:
    """Train a task in a folder: checkpoint, metrics.jsonl, TensorBoard events, kept models.

    Args:
        task: what is trained.
        folder: where everything is written.
        settings: how; all of them are saved, and must be the same when a run is resumed.
        resume: continue from the checkpoint in the folder.

    Returns:
        Whether training finished; it did not if it was interrupted (Ctrl-C), and then everything is
        saved for another call with ``resume``.
    """
    from accelerate import Accelerator

    loop = _Loop(task, folder, settings, Accelerator(cpu=settings.cpu))
    try:
        with together(loop.accelerator.num_processes):
            return loop.run(resume=resume)
    finally:
        loop.accelerator.end_training()


def on_main(make: Callable[[], Path], *, cpu: bool) -> Path:
    """What the main process made, such as the folder of a run, on all processes.

    Args:
        make: called on the main process only; if it fails, all processes do.
        cpu: as in the settings.
    """
    from accelerate.utils import broadcast_object_list

    made: list[Path | str] = [""]
    if is_main(cpu=cpu):
        try:
            made = [make()]
        except (UserError, OSError) as error:
            made = [str(error)]
    broadcast_object_list(made)
    if isinstance(made[0], str):
        raise UserError(made[0])
    return made[0]


def main_first(make: Callable[[], Made], *, cpu: bool) -> Made:
    """What every process makes for itself, the main one before the others, such as a download.

    Args:
        make: called on every process; if it fails on the main one, all processes do.
        cpu: as in the settings.
    """
    made: list[Made] = []

    def first() -> Path:
        made.append(make())
        return Path()

    on_main(first, cpu=cpu)
    return made[0] if made else make()


def is_main(*, cpu: bool) -> bool:
    """Whether this is the main process, or the only one."""
    from accelerate import PartialState

    return bool(PartialState(cpu=cpu).is_main_process)


class _Loop(Generic[Batch]):
    def __init__(
        self, task: Task[Batch], folder: Path, settings: Training, accelerator: Accelerator
    ) -> None:
        self.task, self.folder, self.settings = task, folder, settings
        self.accelerator, self.processes = accelerator, Processes(accelerator)
        self.main = accelerator.is_main_process
        self.checkpoint = Checkpoint(folder / "checkpoint.pt")
        self.position = Position()
        self.meter = Meter()

    def run(self, *, resume: bool) -> bool:
        self.task.model.to(self.accelerator.device)
        self.processes.share(self.task.model.parameters())
        self.processes.share(self.task.model.buffers())
        if resume:
            self.position = resume_from(self.checkpoint, self.task, self.settings, self.meter)
            self._require_not_past()
            if self.main:
                RunFolder(self.folder).write_settings(self.settings)  # more epochs, perhaps
        else:
            self.checkpoint.require_none()
        self.processes.wait()
        start = self.position.step
        with (
            Records(self.folder, start, self.position.log_bytes, enabled=self.main) as self.records,
            Bar(self.task, self.settings.epochs, start, enabled=self.main) as self.bar,
            Interrupt() as self.interrupt,
        ):
            if not resume:
                self._end_epoch()
            return self._epochs()

    def _epochs(self) -> bool:
        total, stop = self.settings.epochs * self.task.steps, False
        while self.position.step < total and not stop:
            stop = self._step()
            if self.position.step % self.task.steps == 0:
                self._end_epoch()
            elif stop or self._due(self.settings.checkpoint_every):
                self._save()
        return self.position.step >= total

    def _step(self) -> bool:
        """One step; whether any process was asked to stop."""
        epoch, step = divmod(self.position.step, self.task.steps)
        seed, rank, device = self.settings.seed, self.accelerator.process_index, self._device
        place = Place(seed, epoch, step, rank, self.accelerator.num_processes)
        self.task.model.train()
        self.task.optimizer.zero_grad(set_to_none=True)
        noise = seeded(seed, "noise", self.position.step, rank, device=device)
        loss, metrics = self.task.loss(self.task.batch(place), noise)
        loss.backward()
        *means, stop = self._average(loss, metrics)
        self._check_finite(means[0])
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.task.model.parameters(), self.settings.clip)
        self.task.optimizer.step()
        self.position.step += 1
        self.meter.add(dict(zip(("loss", *metrics), means, strict=True)))
        self.bar.advance(means[0])
        if self._due(self.settings.log_every):
            self._log_training()
        return stop > 0

    def _average(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> list[float]:
        """Means over the processes of loss, metrics and requests to stop; of gradients in place."""
        numbers = [loss.detach(), *(m.detach() for m in metrics.values())]
        numbers.append(loss.new_tensor(float(self.interrupt.requested)))
        return self.processes.average(numbers, self._trained)

    def _end_epoch(self) -> None:
        """Log, run the hook, validate, save; at the start of training too."""
        self._check_weights()  # before anything is made of them
        self._log_training()
        self.processes.share(self.task.model.buffers())  # batch statistics differ between processes
        epoch, seed = self.position.step // self.task.steps, self.settings.seed
        self.task.model.eval()
        metrics: dict[str, float] = {}
        if epoch > 0:
            metrics |= self.task.end_epoch(epoch, seeded(seed, "epoch", epoch, device=self._device))
        with torch.no_grad():
            metrics |= self.task.validate(seeded(seed, "validate", device=self._device))
        self.records.write("valid", self.position.step, epoch, metrics)
        self.bar.report(epoch, metrics)
        every = self.settings.keep_every
        if self.main and every and epoch % every == 0:
            keep_model(self.folder / "models" / f"epoch-{epoch:04d}.safetensors", self.task.model)
        self._save()

    def _log_training(self) -> None:
        if self.meter.count:
            epoch = -(-self.position.step // self.task.steps)
            self.records.write("train", self.position.step, epoch, self.meter.means())
            self.meter.clear()

    def _require_not_past(self) -> None:
        had = self.position.step / self.task.steps
        if had > self.settings.epochs:
            raise UserError(
                f"epochs is {self.settings.epochs}, but the run has had {had:g}; expected at least as "
                "many. Resume it with more, or not at all."
            )

    def _save(self) -> None:
        self._check_weights()
        self.position.log_bytes = self.records.size()
        if self.main:
            self.checkpoint.save(self.task, self.settings, self.position, self.meter)
        self.processes.wait()

    def _due(self, every: int) -> bool:
        return every > 0 and self.position.step % every == 0

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            self._diverged(f"the loss is {loss}")

    def _check_weights(self) -> None:
        for name, parameter in self.task.model.named_parameters():
            if not parameter.isfinite().all():
                self._diverged(f"the weights {name} are not all finite")

    def _diverged(self, sign: str) -> NoReturn:
        raise UserError(
            f"{sign} at step {self.position.step}; expected numbers. Training diverged: lower the "
            "learning rate or clip the gradient. The checkpoint is from before."
        )

    @property
    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self.task.model.parameters() if p.requires_grad]

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.accelerator.device
        return device
