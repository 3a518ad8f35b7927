"""Every committed picture, and how it is drawn from committed tables, without training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from reproduction.answers.listed import outdated_answers, outdated_pages, write_answers
from reproduction.bernoulli.figures import variance_figure as figure1
from reproduction.best_of.exact import variance_figure as best_of_variance
from reproduction.best_of.figures import curves_figure as best_of_curves
from reproduction.control_variates import variance_figure as control_variates
from reproduction.harness.appearance import appearance
from reproduction.harness.drawing import stamp, stamp_of
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.harness.tables import committed_table
from reproduction.lm.figures import curves_figure as lm_curves
from reproduction.pronunciation.figures import curves_figure as fine_tuning
from reproduction.pronunciation.figures import measured_figure as pronunciation
from reproduction.rl4co import training_figure
from reproduction.tsp.figures import best_of_k_figure, gap_figure
from reproduction.tsp.figures import variance_figure as tsp_variance
from reproduction.vae.figures import both_domains_figure
from reproduction.vae.figures import curves_figure as vae_curves
from reproduction.vae.figures import variance_figure as vae_variance
from reproduction.when_it_pays import gain_figure

RLOO = appearance("rloo").label


class Picture(NamedTuple):
    """A picture in the repository.

    Attributes:
        path: of the PNG file.
        draw: from the content of the tables to the figure.
        tables: CSV files; names without a folder are beside the picture.
    """

    path: str
    draw: Callable[..., Figure]
    tables: tuple[str, ...]

    def figure(self, root: Path) -> Figure:
        """Draw the figure, in memory, from the tables below a folder."""
        beside = Path(self.path).parent
        paths = [root / (table if "/" in table else beside / table) for table in self.tables]
        return self.draw(*(committed_table(path) for path in paths))


by_steps, by_instances = (partial(gap_figure, axis=axis) for axis in ("steps", "instances"))
means_of_3, means_of_5 = (partial(vae_curves, smoothing=window) for window in (3, 5))
vae_variances = partial(vae_variance, trained_with=f"{RLOO}, k = 4")

PICTURES = (
    Picture("docs/assets/figure1.png", figure1, ("results/bernoulli/variances.csv",)),
    Picture("docs/assets/best_of.png", best_of_variance, ("results/best_of/exact/variances.csv",)),
    Picture(
        "docs/assets/best_of_k.png", best_of_k_figure, ("results/tsp/best_of_k/20/best_of_k.csv",)
    ),
    Picture(
        "docs/assets/control_variates.png",
        control_variates,
        ("results/control_variates/variances.csv",),
    ),
    Picture("docs/assets/when_it_pays.png", gain_figure, ("results/when_it_pays/gains.csv",)),
    Picture("results/best_of/lm/curves.png", best_of_curves, ("curves.csv",)),
    Picture("results/best_of/tsp/curves.png", best_of_curves, ("curves.csv",)),
    Picture("results/lm/curves.png", lm_curves, ("curves.csv",)),
    Picture("results/lm/sparse/curves.png", lm_curves, ("curves.csv",)),
    Picture(
        "results/pronunciation/measured.png",
        pronunciation,
        ("groups.csv", "variance.csv", "pass.csv", "results/when_it_pays/gains.csv"),
    ),
    Picture("results/pronunciation/training/curves.png", fine_tuning, ("curves.csv",)),
    Picture("results/rl4co/figure.png", training_figure, ("training.csv", "best_of_k.csv")),
    Picture(
        "results/tsp/best_of_k/sizes.png",
        best_of_k_figure,
        tuple(f"results/tsp/best_of_k/{nodes}/best_of_k.csv" for nodes in (50, 100)),
    ),
    Picture(
        "results/tsp/best_of_k/our-model.png",
        best_of_k_figure,
        ("results/tsp/best_of_k/our-model/best_of_k.csv",),
    ),
    *(
        Picture(f"results/tsp/{runs}/gap-steps.png", by_steps, ("gaps.csv",))
        for runs in ("start", "second-start", "continued-1e-4", "continued-1e-5", "tsp10", "tsp20")
    ),
    *(
        Picture(f"results/tsp/{runs}/gap-instances.png", by_instances, ("gaps.csv",))
        for runs in ("start", "tsp10", "tsp20")
    ),
    Picture(
        "results/tsp/variance/variance.png",
        partial(tsp_variance, trained_with=RLOO),
        (
            "variance.csv",
            "policies.csv",
            "results/tsp/released/variance.csv",
            "results/tsp/released/policies.csv",
        ),
    ),
    Picture("results/vae/curves.png", means_of_3, ("curves.csv",)),
    Picture(
        "results/vae/both-domains.png",
        partial(both_domains_figure, smoothing=3),
        ("curves.csv", "results/vae/2-mean-image/curves.csv"),
    ),
    Picture("results/vae/2-mean-image/curves.png", means_of_3, ("curves.csv",)),
    Picture("results/vae/20-200-epochs/curves.png", means_of_5, ("curves.csv",)),
    Picture("results/vae/20-k-8-and-binarized/curves.png", means_of_3, ("curves.csv",)),
    Picture("results/vae/2-variance/variance.png", vae_variances, ("variance.csv",)),
    Picture("results/vae/20-variance/variance.png", vae_variances, ("variance.csv",)),
)

IMAGES = "it shows images that a trained model makes, and models are not in the repository"
NEED_A_MODEL = {
    "results/vae/images-2-rloo-0.png": IMAGES,
    "results/vae/images-2-unordered_set-0.png": IMAGES,
    "results/vae/images-20-rloo-0.png": IMAGES,
    "results/vae/images-20-unordered_set-0.png": IMAGES,
}
"""Pictures that cannot be drawn from tables, with the reason. None of them names an estimator."""


@dataclass(frozen=True, kw_only=True)
class FiguresSettings:
    """Redraw every picture of the README, the documentation and the results from their tables.

    The pages of results get the present content of the tables that they show.

    Attributes:
        root: folder of the repository.
        check: write nothing; fail if a picture is older than its tables or the appearance of estimators,
            or a page older than its tables.
    """

    root: Path = Path()
    check: bool = False


def figures(settings: FiguresSettings) -> None:
    """Redraw the pictures and fill the pages, or check them."""
    if not settings.check:
        write_answers(settings.root)
    stale, pages = outdated(settings.root), outdated_pages(settings.root)
    if settings.check and (stale or pages):
        raise UserError(
            f"{', '.join([*stale, *map(str, pages)])}: drawn from other tables, labels or colours; "
            "expected the present ones. Redraw the pictures with: make figures"
        )
    for page, text in pages.items():
        RunFolder(page.parent).write_text(page.name, text)
        print(f"{page} (changed)")
    for picture in () if settings.check else PICTURES:
        path = settings.root / picture.path
        RunFolder(path.parent).write_figure(path.name, picture.figure(settings.root))
        print(f"{picture.path}{' (changed)' if picture.path in stale else ''}")


def outdated(root: Path) -> list[str]:
    """Return the pictures and answers below a folder that would be others now, or are missing."""
    return outdated_answers(root) + [
        picture.path
        for picture in PICTURES
        if not (root / picture.path).exists()
        or stamp_of(root / picture.path) != stamp(picture.figure(root))
    ]
