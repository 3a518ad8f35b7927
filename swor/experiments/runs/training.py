r"""The training loop of the experiments: $\theta \leftarrow \theta - \text{Adam}(\frac1P \sum_r \nabla L_r)$.

A :class:`swor.experiments.runs.task.Task` says what is trained, on which batches, and how it is
validated. :func:`train` does the rest, on one process or, started by ``torchrun`` or ``accelerate
launch``, on P of them.

Batches and noise are functions of their place in the run (seed, epoch, step, process). So no two
processes draw the same noise, and a run that was killed continues from its last checkpoint to the
numbers that it would have reached: there is no state of a random generator to lose.

The records of a batch are split over the processes. The k samples of one record are not: weights and
baselines of samples without replacement depend on all k together, and k / P of them on each process
would be P separate samples, which may repeat each other. To use more processes, give each more records.

If a process dies, the others end with an error that says so, and the run is resumed from the last
checkpoint, which is whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import torch
from torch import Tensor, nn

from swor.experiments.runs.checkpoint import Checkpoint
from swor.experiments.runs.errors import UserError
from swor.experiments.runs.folder import RunFolder, open_folder, require_new
from swor.experiments.runs.interrupt import interruptible
from swor.experiments.runs.lock import FolderLock
from swor.experiments.runs.metrics import Bar, Meter, Records, last_step
from swor.experiments.runs.models import keep_model, kept_name
from swor.experiments.runs.processes import Processes, connect, is_main, on_main, together
from swor.experiments.runs.settings import TrainingSettings, as_json, read_settings, require_same
from swor.experiments.runs.task import Batch, Place, Task, seeded

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from accelerate import Accelerator

STOPPED = "Stopped at the end of a step, and saved. Continue with: swor {command} --resume {path}"


def run(
    make: Callable[[], Task[Batch]],
    settings: TrainingSettings,
    *,
    command: str,
    name: str,
    kept: DataclassInstance | None = None,
) -> Path:
    """Train a task in the folder that the settings name, and return the folder.

    The weights at the end are in ``model.safetensors``.

    Args:
        make: makes what is trained; called when it is clear that the folder can be used, since it
            may take minutes.
        settings: of the run.
        command: its name on the command line.
        name: of a new folder in ``runs``, if the settings name none.
        kept: the settings that the model is built from, which are kept beside its weights.
    """

    def check() -> Path:
        if settings.out is not None and settings.resume is None:
            require_new(settings.out)
        return Path()

    def folder() -> Path:
        return open_folder(settings, name, out=settings.out, resume=settings.resume).path

    on_main(check, cpu=settings.cpu)
    task = make()
    path = on_main(folder, cpu=settings.cpu)
    finished = train(task, path, settings, resume=settings.resume is not None)
    if is_main(cpu=settings.cpu):
        if finished:
            keep_model(path / "model.safetensors", task.model, kept)
        ended = f"The run is in {path}"
        print(ended if finished else STOPPED.format(command=command, path=path))
    if not finished:
        raise KeyboardInterrupt
    return path


def train(
    task: Task[Batch], folder: Path, settings: TrainingSettings, *, resume: bool = False
) -> bool:
    """Train a task in a folder: checkpoint, metrics.jsonl, TensorBoard events, kept models.

    Args:
        task: what is trained.
        folder: where everything is written.
        settings: of the run; they are saved, and must be the same when the run is resumed.
        resume: continue from the checkpoint in the folder, or from the beginning if the run ended
            before it wrote one.

    Returns:
        Whether training finished. It did not if it was interrupted (Ctrl-C); then everything is
        saved for another call with ``resume``.
    """
    loop, lock = _Loop(task, folder, settings, connect(cpu=settings.cpu)), FolderLock(folder)
    try:
        with together(loop.accelerator.num_processes):
            on_main(lock.acquire, cpu=settings.cpu)
            return loop.run(resume=resume)
    finally:
        lock.release()
        loop.accelerator.end_training()


@dataclass
class _Position:
    """The number of steps taken, and of bytes written to metrics.jsonl."""

    step: int = 0
    log_bytes: int = 0


class _Loop(Generic[Batch]):
    def __init__(
        self, task: Task[Batch], folder: Path, settings: TrainingSettings, accelerator: Accelerator
    ) -> None:
        self.task, self.folder, self.settings = task, folder, settings
        self.accelerator, self.processes = accelerator, Processes(accelerator)
        self.main = accelerator.is_main_process
        self.checkpoint = Checkpoint(folder / "checkpoint.pt")
        self.position = _Position()
        self.taken = 0  # steps by this process, however many the run has had before
        self.meter = Meter()

    def run(self, *, resume: bool) -> bool:
        task, settings = self.task, self.settings
        task.model.to(self.accelerator.device)
        restore = resume and not self._ended_before_a_checkpoint()
        begun: dict[str, float] = {}
        if restore:
            self._restore(self.checkpoint.load())
        else:
            self.checkpoint.require_none()
            begun = task.begin()
        self.processes.share(task.model.parameters())
        self.processes.share(task.model.buffers())
        self.processes.wait()  # all have read what the main process writes from here on
        if resume and self.main:
            RunFolder(self.folder).write_settings(settings)  # there may be more epochs
        start = self.position.step
        with (
            Records(self.folder, start, self.position.log_bytes, enabled=self.main) as self.records,
            Bar(task.steps, task.examples, settings.epochs, start, enabled=self.main) as self.bar,
            interruptible() as self.interrupt,
        ):
            if not restore:
                self._keep_step()
                self._end_epoch(begun)
            return self._epochs()

    def _epochs(self) -> bool:
        total, stop = self.settings.epochs * self.task.steps, False
        while self.position.step < total and not stop:
            stop = self._step()
            self._keep_step()
            if self.position.step % self.task.steps == 0:
                self._end_epoch()
            elif stop or self._due(self.settings.checkpoint_every):
                self._save()
        return self.position.step >= total

    def _step(self) -> bool:
        """Take one step, and return whether any process was asked to stop."""
        epoch, step = divmod(self.position.step, self.task.steps)
        seed, rank, device = self.settings.seed, self.accelerator.process_index, self._device
        place = Place(seed, epoch, step, rank, self.accelerator.num_processes)
        self.task.model.train()
        self.task.optimizer.zero_grad(set_to_none=True)
        noise = seeded(seed, "noise", self.position.step, rank, device=device)
        with self._numbers():
            loss, metrics = self.task.loss(self.task.batch(place), noise)
        loss.backward()
        *means, stop = self._average(loss, metrics)
        if not math.isfinite(means[0]):
            self._diverged(f"the loss is {means[0]}")
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.task.model.parameters(), self.settings.clip)
        self.task.optimizer.step()
        self.position.step += 1
        self.taken += 1
        self.meter.add(dict(zip(("loss", *metrics), means, strict=True)))
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
        epoch, seed = self.position.step // self.task.steps, self.settings.seed
        self.task.model.eval()
        metrics = dict(begun or {})
        with self._numbers():
            if epoch > 0:
                noise = seeded(seed, "epoch", epoch, device=self._device)
                metrics |= self.task.end_epoch(epoch, noise)
            with torch.no_grad():
                metrics |= self.task.validate(seeded(seed, "validate", device=self._device))
        self.records.write("valid", self.position.step, epoch, metrics)
        self.bar.report(epoch, metrics)
        every = self.settings.keep_every
        if every and epoch % every == 0:
            self._keep(kept_name("epoch", epoch))
        self._save()

    def _keep_step(self) -> None:
        """Keep a copy of the model if this step is one of those; before the checkpoint of the step."""
        if self.position.step in self.settings.keep_steps:
            self._check_weights()
            self._keep(kept_name("step", self.position.step))

    def _keep(self, name: str) -> None:
        if self.main:
            path = self.folder / "models" / name
            keep_model(path, self.task.model, self.task.model_settings)

    def _log_training(self) -> None:
        if self.meter.count:
            epoch = -(-self.position.step // self.task.steps)
            self.records.write("train", self.position.step, epoch, self.meter.means())
            self.meter.clear()

    def _save(self) -> None:
        self._check_weights()
        self.position.log_bytes = self.records.size()
        if self.main:
            self.checkpoint.save(
                {
                    "settings": as_json(self.settings),
                    "processes": self.accelerator.num_processes,
                    "position": asdict(self.position),
                    "meter": {"count": self.meter.count, "totals": dict(self.meter.totals)},
                    "model": self.task.model.state_dict(),
                    "optimizer": self.task.optimizer.state_dict(),
                    "task": self.task.state(),
                }
            )
        self.processes.wait()

    def _restore(self, content: Mapping[str, Any]) -> None:
        """Continue from what :meth:`_save` wrote, with the same settings."""
        with self.checkpoint.restoring():
            require_same(content["settings"], self.settings, self.checkpoint.path)
            self._announce(content["processes"])
            self.task.model.load_state_dict(content["model"])
            self.task.optimizer.load_state_dict(content["optimizer"])
            self.task.load_state(content["task"])
            meter, self.position = content["meter"], _Position(**content["position"])
            self.meter.count, self.meter.totals = meter["count"], meter["totals"]
        had = self.position.step / self.task.steps
        if had > self.settings.epochs:
            raise UserError(
                f"epochs is {self.settings.epochs}, but the run has had {had:g}; expected at least as "
                "many. Resume it with more, or not at all."
            )

    def _announce(self, before: int) -> None:
        """Say so if the number of processes is not that of the checkpoint."""
        now = self.accelerator.num_processes
        if self.main and before != now:
            print(
                f"{self.checkpoint.path} was written by {before} processes, and the run continues "
                f"with {now}. Each process draws noise of its own, so the numbers from here on are "
                f"not those that {before} processes would reach. To reach them, resume with {before}."
            )

    def _ended_before_a_checkpoint(self) -> bool:
        """Whether the folder has the settings of a run, the same as now, and no step was logged."""
        if self.checkpoint.path.exists() or not (self.folder / "settings.json").exists():
            return False
        if last_step(self.folder) > 0:
            return False  # there was a checkpoint, and it was removed
        stored = read_settings(type(self.settings), self.folder)
        require_same(as_json(stored), self.settings, self.folder / "settings.json")
        if self.main:
            print(f"{self.folder} has no checkpoint yet: the run starts from its beginning.")
        return True

    @contextmanager
    def _numbers(self) -> Iterator[None]:
        """Within it, a value that is refused, and was not in earlier steps, is a divergence."""
        try:
            yield
        except ValueError as error:
            self._check_weights()
            if self.taken == 0:
                raise  # a mistake in the task, not in its numbers
            reason = str(error).splitlines()[0]
            self._diverged(f"the loss cannot be computed ({reason})")

    def _due(self, every: int) -> bool:
        return every > 0 and self.position.step % every == 0

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
    def _device(self) -> torch.device:
        device: torch.device = self.accelerator.device
        return device
