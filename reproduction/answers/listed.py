"""Every text of the pages of results that is computed from committed tables, and its places in the pages.

A page says where a text belongs, between two comments, and the command ``figures`` copies it there:

    <!-- table: best_of_k/20/best_of_k.md -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from reproduction.answers import best_of, lm, pronunciation, rl4co, tsp, vae
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.harness.tables import committed_table
from reproduction.pronunciation.tables import pass_table, samples_table, training_table
from reproduction.rl4co import decoding_table
from reproduction.rl4co import training_table as rl4co_training
from reproduction.tsp.best_of_k import answer as best_of_k_answer
from reproduction.tsp.best_of_k import best_of_k_table
from reproduction.tsp.ranking import ranking, ranking_table

TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def table(make: Callable[..., str], *names: str) -> Callable[[Path], str]:
    """Return the function from a folder to the text that is made of the tables in it."""
    return lambda folder: make(*(committed_table(folder / name) for name in names))


ranked = table(lambda gaps: ranking_table(ranking(gaps)), "gaps.csv")

VARIANCES = (
    "2-variance",
    "2-variance-as-released",
    "20-variance",
    "20-variance-as-released",
    "20-additive",
)
"""Folders that the command vae-variance wrote; two others have settings of an earlier version."""

ANSWERS: dict[str, Callable[[Path], str]] = {
    "results/vae/answer.md": vae.answer,
    "results/vae/summary.md": vae.summary,
    "results/vae/collapse.md": vae.collapse,
    "results/vae/curves.md": vae.curves,
    "results/vae/2-mean-image/curves.md": vae.curves,
    "results/vae/2-mean-image/differences.md": vae.differences,
    "results/vae/20-200-epochs/curves.md": vae.curves,
    "results/vae/20-200-epochs/means.md": vae.late_means,
    "results/vae/20-k-8-and-binarized/curves.md": vae.curves,
    **{f"results/vae/{name}/variance.md": vae.variances for name in VARIANCES},
    "results/vae/20-control/control.md": vae.control,
    "results/vae/2-control/control.md": vae.control,
    "results/vae/20-rodeo/control.md": vae.control,
    "results/vae/20-control-epochs/control.md": vae.control_epochs,
    "results/vae/20-late-variance/control.md": vae.control_epochs,
    "results/vae/20-control-training/control.md": vae.control_training,
    "results/lm/answer.md": lm.answer,
    "results/lm/tasks.md": lm.tasks,
    "results/lm/steps.md": lm.steps,
    "results/lm/sparse/steps.md": lm.steps,
    "results/lm/confidence.md": lm.confidence,
    "results/lm/sparse/confidence.md": lm.confidence,
    "results/best_of/answer.md": best_of.answer,
    "results/best_of/both.md": best_of.both,
    "results/rl4co/answer.md": rl4co.answer,
    "results/rl4co/training.md": table(rl4co_training, "training.csv"),
    "results/rl4co/best_of_k.md": table(decoding_table, "best_of_k.csv"),
    "results/rl4co/best_of_few.md": rl4co.best_of_few,
    "results/rl4co/saved.md": rl4co.saved,
    "results/when_it_pays/training.md": tsp.when_it_pays,
    "results/tsp/answer.md": tsp.answer,
    "results/tsp/variances.md": tsp.variances,
    "results/tsp/risk.md": tsp.risk,
    "results/tsp/pairs.md": tsp.pairs,
    "results/tsp/differences.md": tsp.differences,
    "results/tsp/validations.md": tsp.validations,
    "results/tsp/start/ranking.md": ranked,
    "results/tsp/second-start/ranking.md": ranked,
    "results/tsp/tsp10/ranking.md": ranked,
    "results/tsp/tsp20/ranking.md": ranked,
    "results/tsp/start/sampled.md": tsp.sampled,
    "results/tsp/second-start/sampled.md": tsp.sampled,
    "results/tsp/tsp20/sampled.md": tsp.sampled,
    "results/tsp/second-start/paired.md": tsp.paired,
    "results/tsp/continued-1e-4/paired.md": tsp.paired,
    "results/tsp/continued-1e-5/paired.md": tsp.paired,
    "results/tsp/continued-1e-4/checkpoints.md": tsp.checkpoints,
    "results/tsp/continued-1e-5/checkpoints.md": tsp.checkpoints,
    "results/tsp/continued-1e-4/since_start.md": tsp.since_start,
    "results/tsp/continued-1e-5/since_start.md": tsp.since_start,
    "results/tsp/best_of_k/20/best_of_k.md": table(best_of_k_table, "best_of_k.csv"),
    "results/tsp/best_of_k/20/answer.md": table(best_of_k_answer, "best_of_k.csv"),
    "results/tsp/best_of_k/50/best_of_k.md": table(best_of_k_table, "best_of_k.csv"),
    "results/tsp/best_of_k/50/answer.md": table(best_of_k_answer, "best_of_k.csv"),
    "results/tsp/best_of_k/100/best_of_k.md": table(best_of_k_table, "best_of_k.csv"),
    "results/tsp/best_of_k/100/answer.md": table(best_of_k_answer, "best_of_k.csv"),
    "results/tsp/best_of_k/our-model/best_of_k.md": table(best_of_k_table, "best_of_k.csv"),
    "results/tsp/best_of_k/our-model/answer.md": table(best_of_k_answer, "best_of_k.csv"),
    "results/tsp/tsp20/instances.md": tsp.instances,
    "results/pronunciation/answer.md": pronunciation.answer,
    "results/pronunciation/samples.md": table(samples_table, "groups.csv", "variance.csv"),
    "results/pronunciation/pass.md": table(pass_table, "pass.csv"),
    "results/pronunciation/training/table.md": table(training_table, "curves.csv"),
}
"""From the path of a file to the function that writes it, which is given the folder of the file."""


def write_answers(root: Path) -> None:
    """Write the files below the folder of a repository that would be others now."""
    for path in outdated_answers(root):
        file = root / path
        RunFolder(file.parent).write_text(file.name, ANSWERS[path](file.parent))
        print(f"{path} (changed)")


def outdated_answers(root: Path) -> list[str]:
    """Return the files that would be others now, or are missing; none where there are no results."""
    listed = {path: root / path for path in ANSWERS if (root / path).parent.is_dir()}
    return [
        path
        for path, file in listed.items()
        if not file.is_file() or file.read_text(encoding="utf-8") != ANSWERS[path](file.parent)
    ]


def filled(page: Path) -> str:
    """Return the text of a page with the present content of its tables."""

    def copied(place: re.Match[str]) -> str:
        path = page.parent / place[2]
        if not path.is_file():
            raise UserError(
                f"{page} has a place for the table {place[2]}, and there is no {path}; expected it. Copy "
                "it from the folder of the run that wrote it, or remove the place."
            )
        return f"{place[1]}{path.read_text(encoding='utf-8')}{place[3]}"

    return TABLE.sub(copied, page.read_text(encoding="utf-8"))


def outdated_pages(root: Path) -> dict[Path, str]:
    """Return the pages of results whose tables are others than those in the files, with their new text."""
    pages = {page: filled(page) for page in sorted((root / "results").rglob("*.md"))}
    return {page: new for page, new in pages.items() if new != page.read_text(encoding="utf-8")}
