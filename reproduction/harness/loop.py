r"""The training loop: $\theta \leftarrow \theta - \text{Adam}(\frac1P \sum_r \nabla L_r)$ on P processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import torch
from torch import Tensor, nn

from reproduction.harness.checkpoint import Checkpoint
from reproduction.harness.divergence import check_weights, diverged, watching
from reproduction.harness.folder import RunFolder
from reproduction.harness.interrupt import interruptible
from reproduction.harness.metrics import Bar, Records
from reproduction.harness.models import keep_model, kept_name
from reproduction.harness.processes import Processes
from reproduction.harness.settings import TrainingSettings
from reproduction.harness.state import RunState, never_saved
from reproduction.harness.task import Batch, Place, Task, seeded

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from accelerate import Accelerator


class Loop(Generic[Batch]):
    """Takes the steps of a run, and logs, validates and saves on the way.

    Args:
        task: what is trained.
        folder: where everything is written.
        settings: of the run.
        accelerator: connects the processes.
    """

    def __init__(
        self, task: Task[Batch], folder: Path, settings: TrainingSettings, accelerator: Accelerator
    ) -> None:
        self.task, self.folder, self.settings = task, folder, settings
        self.accelerator, self.processes = accelerator, Processes(accelerator)
        self.main = accelerator.is_main_process
        self.checkpoint = Checkpoint(folder / "checkpoint.pt")
        self.state = RunState(task, settings)
        self.taken = 0  # steps by this process, however many the run has had before

    def run(self, *, resume: bool) -> bool:
        """Train until the end, and return True; or until a request to stop, and return False.

        Args:
            resume: continue from the checkpoint, or from the beginning if there never was one.
        """
        task, settings = self.task, self.settings
        task.model.to(self.accelerator.device)
        restored = resume and self._restore()
        begun: dict[str, float] = {}
        if not restored:
            self.checkpoint.require_none()
            begun = task.begin()
        self.processes.share(task.model.parameters())
        self.processes.share(task.model.buffers())
        self.processes.wait()  # all have read what the main process writes from here on
        if resume and self.main:
            RunFolder(self.folder).write_settings(settings)  # there may be more epochs
        start = self.state.step
        with (
            Records(self.folder, start, self.state.log_bytes, enabled=self.main) as self.records,
            Bar(task.steps, task.examples, settings.epochs, start, enabled=self.main) as self.bar,
            interruptible() as self.interrupt,
        ):
            if not restored:
                self._keep_step()
                self._end_epoch(begun)
            return self._epochs()

    def _epochs(self) -> bool:
        total, stop = self.settings.epochs * self.task.steps, False
        while self.state.step < total and not stop:
            stop = self._step()
            self._keep_step()
            if self.state.step % self.task.steps == 0:
                self._end_epoch()
            elif stop or self._due(self.settings.checkpoint_every):
                self._save()
        return self.state.step >= total

    def _step(self) -> bool:
        """Take one step, and return whether any process was asked to stop."""
        epoch, step = divmod(self.state.step, self.task.steps)
        seed, rank, device = self.settings.seed, self.accelerator.process_index, self._device
        place = Place(seed, epoch, step, rank, self.accelerator.num_processes)
        self.task.model.train()
        self.task.optimizer.zero_grad(set_to_none=True)
        noise = seeded(seed, "noise", self.state.step, rank, device=device)
        with self._watching():
            loss, metrics = self.task.loss(self.task.batch(place), noise)
        loss.backward()
        *means, stop = self._average(loss, metrics)
        if not math.isfinite(means[0]):
            raise diverged(f"the loss is {means[0]}", self.state.step)
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.task.model.parameters(), self.settings.clip)
        self.task.optimizer.step()
        self.state.step += 1
        self.taken += 1
        self.state.meter.add(dict(zip(("loss", *metrics), means, strict=True)))
        self.bar.advance(means[0])
        if self._due(self.settings.log_every):
            self._log_training()
        return stop > 0

    def _average(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> list[float]:
        """Average the loss, the metrics, requests to stop and, in place, the gradients."""
        numbers = [loss.detach(), *(m.detach() for m in metrics.values())]
        numbers.append(loss.new_tensor(float(self.interrupt.requested)))
        trained = [p for p in self.task.model.parameters() if p.requires_grad]
        return self.processes.average(numbers, trained)

    def _end_epoch(self, begun: Mapping[str, float] | None = None) -> None:
        """Log, run the hook of the task, validate and save; at the start of training too."""
        self._check_weights()  # before the hook and the validation use them
        self._log_training()
        self.processes.share(self.task.model.buffers())  # batch statistics differ between processes
        epoch, seed = self.state.step // self.task.steps, self.settings.seed
        self.task.model.eval()
        metrics = dict(begun or {})
        with self._watching():
            if epoch > 0:
                noise = seeded(seed, "epoch", epoch, device=self._device)
                metrics |= self.task.end_epoch(epoch, noise)
            with torch.no_grad():
                metrics |= self.task.validate(seeded(seed, "validate", device=self._device))
        self.records.write("valid", self.state.step, epoch, metrics)
        self.bar.report(epoch, metrics)
        every = self.settings.keep_every
        if every and epoch % every == 0:
            self._keep(kept_name("epoch", epoch))
        self._save()

    def _keep_step(self) -> None:
        """Keep a copy of the model if this step is one of those; before the checkpoint of the step."""
        if self.state.step in self.settings.keep_steps:
            self._check_weights()
            self._keep(kept_name("step", self.state.step))

    def _keep(self, name: str) -> None:
        if self.main:
            path = self.folder / "models" / name
            keep_model(path, self.task.model, self.task.model_settings)

    def _log_training(self) -> None:
        if self.state.meter.count:
            epoch = -(-self.state.step // self.task.steps)
            self.records.write("train", self.state.step, epoch, self.state.meter.means())
            self.state.meter.clear()

    def _save(self) -> None:
        self._check_weights()
        self.state.log_bytes = self.records.size()
        if self.main:
            processes = {"processes": self.accelerator.num_processes}
            self.checkpoint.save(self.state.content() | processes)
        self.processes.wait()

    def _restore(self) -> bool:
        """Continue from the checkpoint, and return True; or False if the run ended before the first."""
        if not self.checkpoint.path.exists() and never_saved(self.folder, self.settings):
            if self.main:
                print(f"{self.folder} has no checkpoint yet: the run starts from its beginning.")
            return False
        content = self.checkpoint.load()
        with self.checkpoint.restoring():
            self.state.restore(content, self.checkpoint.path)
            self._announce(content["processes"])
        self.state.require_epochs()
        return True

    def _announce(self, before: int) -> None:
        """Say so if the number of processes is not that of the checkpoint."""
        now = self.accelerator.num_processes
        if self.main and before != now:
            print(
                f"{self.checkpoint.path} was written by {before} processes, and the run continues "
                f"with {now}. Each process draws noise of its own, so the numbers from here on are "
                f"not those that {before} processes would reach. To reach them, resume with {before}."
            )

    def _watching(self) -> AbstractContextManager[None]:
        return watching(self.task.model, self.state.step, first=self.taken == 0)

    def _check_weights(self) -> None:
        check_weights(self.task.model, self.state.step)

    def _due(self, every: int) -> bool:
        return every > 0 and self.state.step % every == 0

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.accelerator.device
        return device
