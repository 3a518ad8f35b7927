"""The command ``lm`` and the command ``lm-figures``: short runs, resumed and drawn."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from run_results import logged, same_weights

from reproduction.cli import main
from reproduction.harness.checkpoint import read_checkpoint
from reproduction.harness.metrics import read_records
from reproduction.harness.models import kept_settings, load_model
from reproduction.lm.settings import LMSettings
from reproduction.lm.task import SortingTask

TINY = ["--digits", "2", "--base", "3", "--width", "8", "--heads", "1", "--layers", "1", "--cpu"]
TINY += ["--batch-size", "4", "--validate-every", "3", "--validation-size", "5", "--log-every", "1"]


@pytest.mark.filterwarnings("ignore")
def test_runs_resume_to_the_same_numbers_and_are_drawn(tmp_path: Path) -> None:
    for estimator in ("unordered_set", "rloo"):
        whole, parts = tmp_path / estimator, tmp_path / f"{estimator}-parts"
        options = ["lm", "--estimator", estimator, *TINY]
        assert main([*options, "--epochs", "2", "--out", str(whole)]) == 0
        assert main([*options, "--epochs", "1", "--out", str(parts)]) == 0
        assert main(["lm", "--resume", str(parts), "--epochs", "2"]) == 0
        assert logged(whole) == logged(parts)
        assert len(logged(whole)) == 9
    runs = [str(tmp_path / e) for e in ("unordered_set", "rloo")]
    figures = tmp_path / "figures"
    assert main(["lm-figures", *runs, "--out", str(figures)]) == 0
    assert (figures / "curves.png").stat().st_size > 10_000
    assert "not in 6 steps" in (figures / "steps.md").read_text()
    assert (figures / "steps.csv").read_text().startswith("estimator,seed,steps,last\n")
    assert (figures / "curves.csv").read_text().count("rloo,0,train,duplicates") == 6
    last = [x for x in logged(tmp_path / "rloo") if x["split"] == "valid"][-1]
    row = next(x for x in (figures / "summary.md").read_text().splitlines() if "answer, end" in x)
    assert f"{last['right']:.3f} ({last['right']:.2f})" in row


def test_models_are_kept_with_their_tied_weights(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["lm", *TINY, "--epochs", "1", "--keep-every", "1", "--out", str(out)]) == 0
    last = out / "model.safetensors"
    settings = kept_settings(last, LMSettings)
    first, model = (SortingTask(settings).model for _ in range(2))
    load_model(out / "models" / "epoch-0000.safetensors", first)
    assert same_weights(first, SortingTask(settings).model)
    load_model(last, model)
    assert not same_weights(first, model)
    assert model.lm_head.weight is model.transformer.wte.weight
    trained = read_checkpoint(out / "checkpoint.pt")["model"]
    assert all(torch.equal(trained[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lm", "--k", "1"], "k is 1; expected at least 2"),
        (["lm", "--learning-rate", "0"], "learning_rate is 0.0; expected more than 0"),
        (["lm", "--validation-size", "0"], "validation_size is 0; expected more than 0"),
        (["lm", "--digits", "1", "--base", "2", "--k", "14"], "only 13 completions of 1 digits"),
        (["lm", "--base", "1"], "base is 1; expected at least 2"),
        (["lm", "--digits", "0"], "digits is 0; expected more than 0"),
        (["lm", "--heads", "3"], "expected a width that the heads can share"),
        (["lm-figures"], "no runs were given"),
        (["lm-figures", "run", "--target", "0"], "target is 0.0; expected a share above 0"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ["unordered_set", "rloo"])
def test_a_run_is_trained_for_the_best_of_some_completions(tmp_path: Path, estimator: str) -> None:
    out = tmp_path / "run"
    options = ["--estimator", estimator, "--best-of", "2", "--epochs", "1", "--out", str(out)]
    assert main(["lm", *TINY, *options]) == 0
    *_, last = read_records(out, "valid")
    assert last["best_of_reward"] > last["sampled_reward"]
    assert last["best_of_solved"] >= last["sampled_solved"]


def test_a_best_of_more_than_k_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lm", "--k", "4", "--best-of", "5"]) == 1
    assert "best_of is 5 and k 4" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", ["lm-figures", "best-of-figures"])
def test_runs_given_twice_or_just_begun_are_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, copy, out = tmp_path / "run", tmp_path / "copy", ["--out", str(tmp_path / "out")]
    options = ["--epochs", "1", "--validate-best-of", "2", "--out", str(run)]
    assert main(["lm", *TINY, *options]) == 0
    shutil.copytree(run, copy)
    assert main([command, str(run), str(tmp_path / "x" / ".." / "run"), *out]) == 1
    assert "a run was given twice" in capsys.readouterr().err
    assert main([command, str(run), str(copy), *out]) == 1
    assert "two of the folders have a run of" in capsys.readouterr().err
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    for begun in (lines[:1], []):
        (run / "metrics.jsonl").write_text("".join(begun))
        assert main([command, str(run), *out]) == 1
        assert re.search("has just begun|was not validated", capsys.readouterr().err)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ["unordered_set", "rloo"])
def test_a_run_is_trained_for_the_log_of_success(tmp_path: Path, estimator: str) -> None:
    out = tmp_path / "run"
    options = ["--estimator", estimator, "--reward", "exact", "--k", "4", "--log-success", "3"]
    assert main(["lm", *TINY, *options, "--epochs", "1", "--out", str(out)]) == 0
    assert read_records(out, "valid")


@pytest.mark.parametrize(
    "given, message",
    [
        (["--log-success", "2"], "expected no best_of and --reward exact"),
        (["--log-success", "5", "--reward", "exact"], "expected an order from 1 to k"),
        (["--log-success", "2", "--reward", "exact", "--estimator", "rloo"], "of k - 1 for rloo"),
    ],
)
def test_an_order_that_cannot_be_estimated_is_refused(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lm", "--k", "4", *given]) == 1
    assert message in capsys.readouterr().err
