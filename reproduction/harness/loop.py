r"""The training loop: $\theta \leftarrow \theta - \text{Adam}(\frac1P \sum_r \nabla L_r)$ on P processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import torch
from torch import nn

from reproduction.harness.checkpoint import CHECKPOINT, RunState
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.harness.interrupt import interruptible
from reproduction.harness.metrics import Bar, Meter, Records, last_step
from reproduction.harness.models import keep_model, kept_name
from reproduction.harness.processes import average, share, track
from reproduction.harness.settings import TrainingSettings
from reproduction.harness.task import Batch, Place, Task, seeded

if TYPE_CHECKING:
    from accelerate import Accelerator


class Loop(Generic[Batch]):
    """Takes the steps of a run, and logs, validates and saves on the way.

    Args:
        task: the task to train.
        folder: where everything is written.
        settings: of the run.
        accelerator: connects the processes.
    """

    def __init__(
        self, task: Task[Batch], folder: Path, settings: TrainingSettings, accelerator: Accelerator
    ) -> None:
        self.task, self.folder, self.settings = task, folder, settings
        self.accelerator, self.main = accelerator, bool(accelerator.is_main_process)
        self.device: torch.device = accelerator.device
        self.checkpoint = folder / CHECKPOINT
        self.state = RunState(task, accelerator.num_processes)
        self.taken = 0  # steps by this process, however many the run has had before

    def run(self, *, resume: bool) -> bool:
        """Train until the end, and return True; or until a request to stop, and return False.

        Args:
            resume: continue from the checkpoint, or from the beginning if there never was one.
        """
        task, total = self.task, self.settings.epochs * self.task.steps
        task.model.to(self.device)
        restored = resume and self._restore()
        self.accelerator.wait_for_everyone()  # all have read what the main process writes from here on
        if self.main:
            RunFolder(self.folder).write_settings(self.settings)  # there may be more epochs
        if self.state.step == total and restored:
            self._say(
                f"The run is finished: it has had its {self.settings.length}; give more to go on."
            )
            return True
        begun = {} if restored else task.begin()
        share([*task.model.parameters(), *task.model.buffers()])
        track(self.accelerator, self.settings, self.folder, self.state.step)
        self.records = Records(self.folder, self.state.log_bytes, self.accelerator)
        self.bar = Bar(total, task.examples, self.state.step, enabled=self.main)
        with self.bar.progress, interruptible() as self.stop:
            if not restored:
                self._keep_step()
                self._end_epoch(begun)
            return self._steps(total)

    def _steps(self, total: int) -> bool:
        stop = False
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
        seed, rank, model = self.settings.seed, self.accelerator.process_index, self.task.model
        place = Place(seed, epoch, step, rank, self.accelerator.num_processes)
        noise = seeded(seed, "noise", self.state.step, rank, device=self.device)
        model.train()
        self.task.optimizer.zero_grad(set_to_none=True)
        with self._watching():
            loss, metrics = self.task.loss(self.task.batch(place), noise)
        loss.backward()
        numbers = [loss, *metrics.values(), loss.new_tensor(float(self.stop.is_set()))]
        trained = [p for p in model.parameters() if p.requires_grad]
        *means, stop = average(self.accelerator, numbers, trained)
        if not math.isfinite(means[0]):
            raise self._diverged(f"the loss is {means[0]}")
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), self.settings.clip)
        self.task.optimizer.step()
        self.state.step += 1
        self.taken += 1
        self.state.meter.add(dict(zip(("loss", *metrics), means, strict=True)))
        self.bar.advance(means[0])
        if self._due(self.settings.log_every):
            self._log_training()
        return stop > 0

    def _end_epoch(self, begun: Mapping[str, float] | None = None) -> None:
        """Log, run the hook of the task, validate and save; at the start of training too."""
        self._check_weights()  # before the hook and the validation use them
        self._log_training()
        share(self.task.model.buffers())  # batch statistics differ between processes
        epoch, seed = self.state.step // self.task.steps, self.settings.seed
        self.task.model.eval()
        metrics = dict(begun or {})
        with self._watching():
            if epoch > 0:
                noise = seeded(seed, "epoch", epoch, device=self.device)
                metrics |= self.task.end_epoch(epoch, noise)
            with torch.no_grad():
                metrics |= self.task.validate(seeded(seed, "validate", device=self.device))
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
            keep_model(self.folder / "models" / name, self.task.model, self.task.model_settings)

    def _log_training(self) -> None:
        if self.state.meter.count:
            epoch = -(-self.state.step // self.task.steps)
            self.records.write("train", self.state.step, epoch, self.state.meter.means())
            self.state.meter = Meter()

    def _save(self) -> None:
        self._check_weights()
        if self.main:
            self.state.log_bytes = self.records.size()
            self.state.save(self.checkpoint)
        self.accelerator.wait_for_everyone()

    def _restore(self) -> bool:
        """Continue from the checkpoint, and return True; or False if the run ended before the first."""
        if not self.checkpoint.exists() and last_step(self.folder) == 0:
            self._say(f"{self.folder} has no checkpoint yet: the run starts from its beginning.")
            return False
        processes, now = self.state.restore(self.checkpoint), self.accelerator.num_processes
        if processes != now:
            self._say(
                f"{self.checkpoint} was written by {processes} processes, and the run continues with "
                f"{now}. Each process draws noise of its own, so the numbers from here on are not "
                f"those that {processes} processes would reach. To reach them, resume with {processes}."
            )
        had = self.state.step / self.task.steps
        if had > self.settings.epochs:
            raise UserError(
                f"epochs is {self.settings.epochs}, but the run has had {had:g}; expected at least as "
                "many. Resume it with more, or not at all."
            )
        return True

    def _say(self, text: str) -> None:
        if self.main:
            print(text)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Report a ValueError as divergence, unless it is raised before this process has taken a step."""
        try:
            yield
        except ValueError as error:
            self._check_weights()
            if self.taken == 0:
                raise
            reason = str(error).splitlines()[0]
            raise self._diverged(f"the loss cannot be computed ({reason})") from error

    def _check_weights(self) -> None:
        """Refuse weights that are infinite or NaN."""
        for name, parameter in self.task.model.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"the weights {name} are not all finite")

    def _diverged(self, sign: str) -> UserError:
        """Return the error of a run that shows a sign of divergence."""
        return UserError(
            f"{sign} at step {self.state.step}; expected numbers. Training diverged: lower the learning "
            "rate or clip the gradient. The checkpoint is from before."
        )

    def _due(self, every: int) -> bool:
        return every > 0 and self.state.step % every == 0
