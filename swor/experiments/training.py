r"""The training loop of the experiments: $\theta \leftarrow \theta - \text{Adam}(\frac1P \sum_r \nabla L_r)$.

A :class:`swor.experiments.task.Task` says what is trained, on which batches and how it is
validated; :func:`train` does the rest, on one process or, started by ``torchrun`` or
``accelerate launch``, on P of them.

Batches and noise are functions of their place in the run (seed, epoch, step, process), so no two
processes draw the same noise, and a run that was killed continues from its last checkpoint to the
very numbers it would have reached: there is no state of a random generator to lose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import torch
from torch import Tensor, nn

from swor.experiments.checkpoint import Checkpoint, Position, keep_model, resume_from
from swor.experiments.errors import UserError
from swor.experiments.interrupt import Interrupt
from swor.experiments.progress import Bar
from swor.experiments.records import Meter, Records
from swor.experiments.task import Batch, Place, Task, Training, seeded

if TYPE_CHECKING:
    from accelerate import Accelerator


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


def is_main(*, cpu: bool) -> bool:
    """Whether this is the main process, or the only one."""
    from accelerate import PartialState

    return bool(PartialState(cpu=cpu).is_main_process)


class _Loop(Generic[Batch]):
    def __init__(
        self, task: Task[Batch], folder: Path, settings: Training, accelerator: Accelerator
    ) -> None:
        self.task, self.folder, self.settings = task, folder, settings
        self.accelerator = accelerator
        self.main = accelerator.is_main_process
        self.checkpoint = Checkpoint(folder / "checkpoint.pt")
        self.position = Position()
        self.meter = Meter()

    def run(self, *, resume: bool) -> bool:
        self.task.model.to(self.accelerator.device)
        self._share_start()
        if resume:
            self.position = resume_from(self.checkpoint, self.task, self.settings, self.meter)
        else:
            self.checkpoint.require_none()
        self.accelerator.wait_for_everyone()
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
        """Average gradients, loss and metrics over the processes, in one message.

        This does what DistributedDataParallel would, without its hooks on the forward pass: an
        estimator may call parts of the model several times, and differentiate on its own.
        """
        numbers = [loss.detach(), *(m.detach() for m in metrics.values())]
        numbers.append(loss.new_tensor(float(self.interrupt.requested)))
        means = torch.stack([n.to(torch.float64) for n in numbers])
        if self.accelerator.num_processes > 1:
            gradients = [p.grad for p in self.task.model.parameters() if p.grad is not None]
            parts = [means.to(loss.dtype), *(g.flatten() for g in gradients)]
            together = self.accelerator.reduce(torch.cat(parts), reduction="mean")
            means, *reduced = together.split([p.numel() for p in parts])
            for gradient, mean in zip(gradients, reduced, strict=True):
                gradient.copy_(mean.view_as(gradient))
        return [float(m) for m in means.tolist()]

    def _end_epoch(self) -> None:
        """Log, run the hook, validate, save; at the start of training too."""
        self._log_training()
        self._share_buffers()
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

    def _save(self) -> None:
        self.position.log_bytes = self.records.size()
        if self.main:
            self.checkpoint.save(self.task, self.settings, self.position, self.meter)
        self.accelerator.wait_for_everyone()

    def _share_start(self) -> None:
        from accelerate.utils import broadcast

        if self.accelerator.num_processes > 1:
            for parameter in self.task.model.parameters():
                parameter.data.copy_(broadcast(parameter.data))
        self._share_buffers()

    def _share_buffers(self) -> None:
        """Batch statistics differ between processes: those of the main process count."""
        from accelerate.utils import broadcast

        if self.accelerator.num_processes > 1:
            for buffer in self.task.model.buffers():
                buffer.copy_(broadcast(buffer.clone()))

    def _due(self, every: int) -> bool:
        return every > 0 and self.position.step % every == 0

    def _check_finite(self, loss: float) -> None:
        if not loss - loss == 0.0:
            raise UserError(
                f"the loss is {loss} at step {self.position.step}; expected a number. Training "
                "diverged: lower the learning rate or clip the gradient. The checkpoint is from "
                "before."
            )

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.accelerator.device
        return device
