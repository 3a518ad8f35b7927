"""Every text of the pages of results that is computed from committed tables, and the file that it is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reproduction.answers import best_of, lm, pronunciation, rl4co, tsp, vae, when_it_pays
from reproduction.harness.folder import RunFolder

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
    "results/vae/20-control/control.md": vae.control,
    "results/vae/2-control/control.md": vae.control,
    "results/vae/20-rodeo/control.md": vae.control,
    "results/vae/20-control-epochs/control.md": vae.control_epochs,
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
    "results/rl4co/training.md": rl4co.training,
    "results/rl4co/best_of_k.md": rl4co.best_of_k,
    "results/rl4co/best_of_few.md": rl4co.best_of_few,
    "results/rl4co/saved.md": rl4co.saved,
    "results/when_it_pays/training.md": when_it_pays.training,
    "results/tsp/answer.md": tsp.answer,
    "results/tsp/variances.md": tsp.variances,
    "results/tsp/risk.md": tsp.risk,
    "results/tsp/pairs.md": tsp.pairs,
    "results/tsp/differences.md": tsp.differences,
    "results/tsp/validations.md": tsp.validations,
    "results/tsp/start/ranking.md": tsp.ranked,
    "results/tsp/second-start/ranking.md": tsp.ranked,
    "results/tsp/tsp10/ranking.md": tsp.ranked,
    "results/tsp/tsp20/ranking.md": tsp.ranked,
    "results/tsp/second-start/paired.md": tsp.paired,
    "results/tsp/continued-1e-4/paired.md": tsp.paired,
    "results/tsp/continued-1e-5/paired.md": tsp.paired,
    "results/tsp/continued-1e-4/checkpoints.md": tsp.checkpoints,
    "results/tsp/continued-1e-5/checkpoints.md": tsp.checkpoints,
    "results/tsp/continued-1e-4/since_start.md": tsp.since_start,
    "results/tsp/continued-1e-5/since_start.md": tsp.since_start,
    "results/tsp/best_of_k/20/best_of_k.md": tsp.best_of_k,
    "results/tsp/best_of_k/20/answer.md": tsp.worth,
    "results/tsp/best_of_k/50/best_of_k.md": tsp.best_of_k,
    "results/tsp/best_of_k/50/answer.md": tsp.worth,
    "results/tsp/best_of_k/100/best_of_k.md": tsp.best_of_k,
    "results/tsp/best_of_k/100/answer.md": tsp.worth,
    "results/tsp/best_of_k/our-model/best_of_k.md": tsp.best_of_k,
    "results/tsp/best_of_k/our-model/answer.md": tsp.worth,
    "results/tsp/tsp20/instances.md": tsp.instances,
    "results/pronunciation/answer.md": pronunciation.answer,
    "results/pronunciation/samples.md": pronunciation.samples,
    "results/pronunciation/pass.md": pronunciation.passes,
    "results/pronunciation/training/table.md": pronunciation.training,
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
