"""A confident start: supervision until a share is solved, the same for all estimators, and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_results import logged, same_weights

from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.task import seeded
from reproduction.lm import task as lm_task
from reproduction.lm.settings import LMSettings
from reproduction.lm.task import SortingTask
from swor.integrations.transformers import ancestral_completions

SIZES = {"digits": 2, "base": 3, "width": 16, "heads": 1, "layers": 1, "batch_size": 16}
TINY = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
TINY += ["--learning-rate=0.01", "--validate-every=2", "--validation-size=20", "--cpu"]
START = ["--reward=exact", "--supervised-until=0.6"]


def task(**changes: object) -> SortingTask:
    settings = LMSettings(**SIZES, learning_rate=0.01, validation_size=20, cpu=True, **changes)
    return SortingTask(settings)


@pytest.mark.parametrize(("by", "metric"), [("greedy", "solved"), ("sampled", "right")])
def test_supervision_ends_when_the_share_is_solved(by: str, metric: str) -> None:
    first, again, other = (
        task(supervised_until=0.6, supervised_by=by, estimator=estimator, seed=seed)
        for estimator, seed in (("unordered_set", 0), ("rloo", 0), ("unordered_set", 1))
    )
    with torch.no_grad():
        assert first.validate(seeded("validate"))[metric] < 0.6
    steps = [each.begin()["supervised_steps"] for each in (first, again, other)]
    with torch.no_grad():
        assert first.validate(seeded("validate"))[metric] >= 0.6
    assert steps[0] == steps[1] > 0
    assert same_weights(first.model, again.model)
    assert not same_weights(first.model, other.model)
    assert task().begin() == {}


def test_sampled_completions_are_right_as_often_as_their_probability_says() -> None:
    trained = task(supervised_until=0.5, supervised_by="sampled")
    trained.begin()
    prompts = trained.valid
    with torch.no_grad():
        right = trained.validate(seeded("validate"))["right"]
        sample = ancestral_completions(
            trained.model, prompts, k=400, max_new_tokens=3, generator=seeded("sampled")
        )
    found = trained.problem.solved(prompts, sample.value).float().mean(-1)
    error = float((found * (1 - found) / 400).mean().sqrt()) / len(prompts) ** 0.5
    assert abs(float(found.mean()) - right) < 4 * error


def test_an_exact_reward_is_for_the_whole_answer() -> None:
    prompts = torch.tensor([[2, 0, 3]])
    value = torch.tensor([[[0, 2, 4], [0, 2, 1], [2, 0, 4]]])
    assert task(reward="exact").reward(prompts, value).tolist() == [[1.0, 0.0, 0.0]]
    share = task().reward(prompts, value)
    assert share[0].tolist() == pytest.approx([1.0, 2 / 3, 1 / 3])


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_a_start_is_resumed_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part, killed = (tmp_path / name for name in ("whole", "part", "killed"))
    assert main(["lm", *TINY, *START, "--epochs=2", f"--out={whole}"]) == 0
    first, *_ = read_records(whole, "valid")
    assert first["supervised_steps"] > 0
    assert first["solved"] >= 0.6
    assert main(["lm", *TINY, *START, "--epochs=1", f"--out={part}"]) == 0
    step = SortingTask.supervised_step

    def refused(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SortingTask, "supervised_step", refused)
    assert main(["lm", "--resume", str(part), "--epochs", "2"]) == 0
    assert logged(part) == logged(whole)
    assert main(["lm", *TINY, *START, "--epochs=2", f"--out={killed}"]) == 130
    monkeypatch.setattr(SortingTask, "supervised_step", step)
    assert main(["lm", "--resume", str(killed)]) == 0  # from its beginning
    assert logged(killed) == logged(whole)


def test_a_share_that_is_not_reached_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lm_task, "MOST_STEPS", 5)
    with pytest.raises(UserError, match="after 5 steps on right answers the model solves 0"):
        task(supervised_until=1.0).begin()
    assert main(["lm", "--supervised-until", "1.5"]) == 1
    assert "supervised_until is 1.5; expected a share" in capsys.readouterr().err
