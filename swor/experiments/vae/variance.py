"""``swor vae-variance``: the gradient variance of all estimators on the same models, Table 1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import tyro
from torch.distributions import Independent, OneHotCategorical

from swor.experiments.data import load
from swor.experiments.errors import UserError, check_positive
from swor.experiments.folder import RunFolder, run_folder
from swor.experiments.resume import MAY_CHANGE, as_json, read_settings, require_same
from swor.experiments.vae.measuring import Subject, cases, measure
from swor.experiments.vae.methods import Method
from swor.experiments.vae.published import PAPER, label
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.tables import Measurement, Row, markdown, variance_figure
from swor.experiments.vae.task import build


@dataclass(frozen=True, kw_only=True)
class Variance:
    """Measure the gradient variance of estimators on the kept models of a run.

    Attributes:
        run: folder of a run of swor vae with --keep-every; the paper trains it with
            --estimator reinforce.
        estimators: which to measure; by default those of Table 1.
        k: number of samples at equal k, and of evaluations at equal evaluations.
        repetitions: gradients per estimator on the last model.
        repetitions_before: gradients per estimator on the models before it; by default as many.
        records: size of the minibatch: the first training images.
        new_minibatch: draw another minibatch for every repetition, as the released code of the
            paper does, so that the variance includes that of the data.
        control_steps: steps that train RELAX's control variate on the model beforehand.
        epochs: which of the kept models to measure; by default all.
        seed: seed of the samples.
        data_dir: folder of the data files; by default that of the run, SWOR_DATA, or a download.
        out: folder to write to; by default a new one in runs/.
        resume: folder of a measurement to continue; its settings become the defaults.
    """

    run: tyro.conf.Positional[Path]
    estimators: tuple[str, ...] = tuple(PAPER)
    k: int = 4
    repetitions: int = 1000
    repetitions_before: int | None = None
    records: int = 100
    new_minibatch: bool = False
    control_steps: int = 500
    epochs: tuple[int, ...] = ()
    seed: int = 0
    data_dir: Path | None = field(default=None, metadata=MAY_CHANGE)
    out: Path | None = field(default=None, metadata=MAY_CHANGE)
    resume: Path | None = field(default=None, metadata=MAY_CHANGE)

    def __post_init__(self) -> None:
        check_positive(self, "k", "records")
        if min(self.repetitions, self.before) < 3:
            raise UserError(
                f"repetitions are {self.repetitions} and before {self.before}; expected at least 3, "
                "for a variance with a standard error."
            )
        if not self.estimators:
            raise UserError("no estimators were given; expected at least one, or leave them out.")

    @property
    def before(self) -> int:
        """The number of repetitions on the models before the last."""
        return self.repetitions if self.repetitions_before is None else self.repetitions_before


def vae_variance(settings: Variance) -> Path:
    """Measure, and return the folder with variance.csv, variance.md and variance.png.

    Args:
        settings: what to measure; with ``resume``, those of the measurement that is continued.
    """
    trained = read_settings(VAE, settings.run, out=None)
    models = kept_models(settings.run, settings.epochs)
    images = load(trained.data, settings.data_dir or trained.data_dir).train
    if settings.records > len(images):
        raise UserError(
            f"records is {settings.records}; expected at most the {len(images)} training images."
        )
    rows = comparisons(settings, trained)
    folder = open_folder(settings)
    try:
        todo = cases(settings, rows, tuple(models))
        subject = Subject(build(trained, images.shape[-1]), images, models, trained.domain)
        measured = measure(settings, subject, todo, folder)
    except KeyboardInterrupt:
        print(f"Stopped. Continue with: swor vae-variance --resume {folder.path}")
        raise
    write(folder, rows, measured, trained)
    print(f"The table is {folder.path / 'variance.md'}")
    return folder.path


def open_folder(settings: Variance) -> RunFolder:
    """A new folder, or the one to resume, if it was begun with the same settings."""
    name = f"{settings.run.name}-variance"
    path = run_folder(settings, name, settings.resume, settings.out)
    if settings.resume is not None:
        stored = json.loads(as_json(read_settings(Variance, path, out=None)))
        require_same(stored, settings, path / "settings.json")
    return RunFolder(path)


def write(
    folder: RunFolder, rows: Sequence[Row], measured: Sequence[Measurement], trained: VAE
) -> None:
    """The table of the last model, and the figure of all."""
    last = max(m.epoch for m in measured)
    at_last = [m for m in measured if m.epoch == last]
    folder.write_text("variance.md", markdown(rows, at_last, trained.domain))
    trained_with = f"{label(trained.estimator)}, k = {trained.samples}"
    with folder.replacing("variance.png") as draft:
        variance_figure(rows, measured, trained_with).savefig(draft, dpi=150)


def kept_models(run: Path, epochs: Sequence[int]) -> dict[int, Path]:
    """The kept models of a run, by epoch."""
    kept = {
        int(p.stem.split("-")[1]): p for p in sorted((run / "models").glob("epoch-*.safetensors"))
    }
    missing = [epoch for epoch in epochs if epoch not in kept]
    if missing or not kept:
        raise UserError(
            f"{run / 'models'} has models of the epochs {list(kept)}; expected "
            f"{missing or 'at least one'}. Train with --keep-every."
        )
    return {epoch: kept[epoch] for epoch in sorted(epochs or kept)}


def comparisons(settings: Variance, trained: VAE) -> list[Row]:
    """For every estimator, its k as in the paper, at equal k, and at equal evaluations.

    An estimator that needs more evaluations even for k = 1 has k = 1.
    """
    n, c = trained.dims, trained.categories
    uniform = Independent(OneHotCategorical(logits=torch.zeros(1, n, c)), 1)
    rows = []
    for name in settings.estimators:
        method = Method(name, n, c)
        fits = [
            k
            for k in range(1, settings.k + 1)
            if method.entry.evaluations(k, uniform) <= settings.k
        ]
        many = not fits
        usual = PAPER[name].k if name in PAPER else settings.k
        rows.append(Row(name, usual, 1 if many else settings.k, max(fits, default=1)))
        for k in {*rows[-1][1:]}:
            method.check(n, c, k)
    return rows
