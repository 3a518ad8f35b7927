"""Table 1: gradients, their variance, which k are compared, and the command that measures them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_vae import DIGITS, exact_negative_elbo
from torch import Tensor

from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.harness.images import load
from reproduction.harness.models import kept_models
from reproduction.harness.task import seeded
from reproduction.vae.command import vae_variance
from reproduction.vae.model import uniform
from reproduction.vae.settings import METHODS, VAESettings, VAEVariance
from reproduction.vae.task import make_vae
from reproduction.vae.variance import (
    REMEMBERED,
    Case,
    Comparison,
    Gradient,
    Measurement,
    comparisons,
    measure_case,
    warm_up_steps,
)
from reproduction.vae.variance_table import variance_table


class Draws:
    """Known draws of a gradient of three coordinates: two of the encoder, one of the decoder."""

    sizes, evaluations = (2, 1), 4

    def __init__(self, draws: Tensor) -> None:
        self.draws = draws

    def __call__(self, number: int) -> Tensor:
        return self.draws[number]


def test_log_variances_are_exact_for_known_draws() -> None:
    draws = torch.randn(30, 3, dtype=torch.float64, generator=seeded("draws")) + 10.0
    draws[:, 2] = 0.1  # a decoder that leaves nothing to chance
    case, advanced = Case(1, "unordered_set", 4, 30), []
    encoder, decoder, both = measure_case(case, Draws(draws), lambda: advanced.append(0))
    assert [m.part for m in (encoder, decoder, both)] == ["encoder", "decoder", "both"]
    for found, columns in ((encoder, slice(0, 2)), (both, slice(0, 3))):
        expected = draws[:, columns].var(0).sum().log()
        assert found.log_variance == pytest.approx(float(expected), abs=1e-10)
    assert (decoder.log_variance, decoder.standard_error) == (-torch.inf, 0.0)
    assert len(advanced) == 30


def test_the_variance_of_the_data_comes_on_top() -> None:
    trained = replace(DIGITS, estimator="rloo")
    images = load("digits").train
    vae = make_vae(trained, 64)
    case, decoder = Case(0, "unordered_set", 4, 40), []
    for new in (False, True):
        settings = VAEVariance(run=Path(), new_minibatch=new)
        gradient = Gradient(settings, vae, images, "unordered_set", 4)
        decoder.append(measure_case(case, gradient, lambda: None)[1].log_variance)
    assert decoder[1] > decoder[0] + 1.0  # the gradient of the decoder is dominated by the data


def test_the_gradient_is_that_of_the_mean_loss() -> None:
    """With all outcomes in the sample nothing is left to chance."""
    trained = VAESettings(dims=1, categories=3)
    images = load("digits").train
    vae = make_vae(trained, 64)
    draw = Gradient(VAEVariance(run=Path(), records=10), vae, images, "unordered_set", 3)
    encoder, decoder = draw(0).split(draw.sizes)
    loss = exact_negative_elbo(vae, images[:10].float(), vae.posterior(images[:10].float())).mean()
    for found, network in ((encoder, vae.encoder), (decoder, vae.decoder)):
        true = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
        expected = torch.cat([g.flatten() for g in true])
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"data": "digits"}, {"categories": 5}, {"dims": 3}])
def test_the_papers_figures_stand_beside_what_they_are_of(changes: dict[str, object]) -> None:
    domain = replace(VAESettings(data="mnist", dims=20), **changes).domain
    row = Comparison("unordered_set", 4, 4, 4)
    measured = [
        Measurement(1, "unordered_set", 4, 4, p, 1.0, 0.1, 9)
        for p in ("encoder", "decoder", "both")
    ]
    table = variance_table([row], measured, domain, VAEVariance(run=Path()))
    assert ("| 1.00 ± 0.10 | 7.05 |" in table) == (changes == {})
    assert "a fixed minibatch of 100 records and the KL outside the cost" in table


def test_what_an_estimator_learns_is_trained_on_the_model_beforehand() -> None:
    vae, images = make_vae(DIGITS, 64), load("digits").train
    weights = [p.detach().clone() for p in vae.parameters()]

    def control(steps: int) -> Tensor:
        settings = VAEVariance(run=Path(), records=10, warm_up=steps)
        draw = Gradient(settings, vae, images, "relax", 1)
        return torch.cat([p.detach().flatten() for p in draw.estimate.parameters()])

    assert torch.equal(control(2), control(2))
    assert not torch.equal(control(2), control(0))
    assert all(torch.equal(p, w) for p, w in zip(vae.parameters(), weights, strict=True))


def test_estimators_are_compared_at_equal_evaluations() -> None:
    rows = {r.estimator: r[1:] for r in comparisons(VAEVariance(run=Path()), VAESettings())}
    assert rows["unordered_set"] == (4, 4, 4)
    assert rows["reinforce_shared_sampled_baseline"] == (1, 4, 3)
    assert rows["arsm"] == (1, 1, 1)


def test_the_kl_in_the_cost_adds_variance_where_there_is_no_baseline() -> None:
    vae, images = make_vae(VAESettings(), 64), load("digits").train
    with torch.no_grad():  # a posterior with a KL that matters, which differs between images
        vae.encoder[-1].weight.mul_(5.0)
    plain = VAEVariance(run=Path(), records=5)
    inside = replace(plain, kl_in_cost=True)

    def draws(settings: VAEVariance, name: str, count: int) -> Tensor:
        draw = Gradient(settings, vae, images, name, 3)
        return torch.stack([draw(i) for i in range(count)])

    for name in ("unordered_set", "rloo", "reinforce_shared_sampled_baseline", "arsm"):
        torch.testing.assert_close(
            draws(inside, name, 2), draws(plain, name, 2), rtol=1e-3, atol=2e-4
        )
    for name in ("reinforce_no_baseline", "sum_and_sample"):
        ours, theirs = draws(plain, name, 200).double(), draws(inside, name, 200).double()
        assert float(theirs.var(0).sum()) > 1.1 * float(ours.var(0).sum())
        exact = draws(plain, "unordered_set", 200).double().mean(0)
        error = ((theirs.var(0).sum() + ours.var(0).sum()) / 200).sqrt()
        assert float((theirs.mean(0) - exact).norm()) < 2 * float(error)


def test_the_papers_definition_is_one_command(run: Path, tmp_path: Path) -> None:
    like = ["--records", "200", "--new-minibatch", "--kl-in-cost"]
    few = ["--estimators", "reinforce_no_baseline", "--repetitions", "3", "--epochs", "2"]
    out = tmp_path / "like"
    assert main(["vae-variance", str(run), *like, *few, "--out", str(out)]) == 0
    said = "a new minibatch of 200 records and the KL inside the cost; the paper's"
    assert said in (out / "variance.md").read_text()
    assert json.loads((out / "settings.json").read_text())["settings"]["kl_in_cost"] is True


@pytest.fixture
def few(run: Path, tmp_path: Path) -> VAEVariance:
    """A small table."""
    return VAEVariance(
        run=run,
        estimators=("relax", "reinforce_shared_sampled_baseline", "unordered_set"),
        repetitions=4,
        repetitions_before=3,
        records=10,
        warm_up=2,
        epochs=(0, 2),
        out=tmp_path / "variance",
    )


def test_the_variance_command_writes_its_tables(few: VAEVariance, tmp_path: Path) -> None:
    folder = vae_variance(few)
    with (folder / "variance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {r["epoch"] for r in rows} == {"0", "2"}
    assert {r["part"] for r in rows} == {"encoder", "decoder", "both"}
    table = (folder / "variance.md").read_text()
    assert table.count("\n") == 2 + 3 + 3
    assert "Trained on the model for 2 steps: RELAX." in table
    assert "7.05" not in table  # the paper's figures are for MNIST
    assert (folder / "variance.png").stat().st_size > 0
    with (folder / "times.csv").open() as file:
        times = {(r["estimator"], r["k"]): r for r in csv.DictReader(file)}
    encoder = {
        (r["estimator"], r["k"]): r for r in rows if (r["epoch"], r["part"]) == ("2", "encoder")
    }
    assert times.keys() == encoder.keys()
    assert all(float(time["seconds"]) > 0.0 for time in times.values())
    with pytest.raises(UserError, match="models of the epochs"):
        vae_variance(replace(few, epochs=(7,), out=tmp_path / "none"))
    (few.run / "models" / ".epoch-0009.7.safetensors").touch()  # of a run that was killed
    assert sorted(kept_models(few.run, "epoch")) == [0, 1, 2]
    for changes, message in [
        ({"repetitions": 2}, "repetitions is 2; expected at least 3"),
        ({"records": 0}, "records is 0; expected more than 0"),
        ({"records": 10**6}, "expected at most the 1400 training images"),
        ({"estimators": ()}, "no estimators were given"),
        ({"estimators": ("unordered_set",), "k": 101}, "does not apply here: k is 101"),
    ]:
        with pytest.raises(UserError, match=message):
            vae_variance(replace(few, **changes, out=tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()


def test_an_interrupted_measurement_continues_to_the_same_numbers(
    few: VAEVariance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = (vae_variance(few) / "variance.csv").read_text()
    plain, draws = Gradient.__call__, []

    def struck(self: Gradient, number: int) -> Tensor:
        draws.append(self.name)
        if len(draws) == 11:  # in the fourth case, of twelve
            raise KeyboardInterrupt
        return plain(self, number)

    monkeypatch.setattr(Gradient, "__call__", struck)
    monkeypatch.setattr("reproduction.vae.command.measure_times", lambda *_: None)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        vae_variance(replace(few, out=part))
    assert f"python -m reproduction vae-variance --resume {part}" in capsys.readouterr().out
    kept = (part / "variance.csv").read_text()
    assert whole.startswith(kept)
    assert kept.count("\n") == 1 + 3 * 3
    draws.clear()
    assert main(["vae-variance", "--resume", str(part), "--seed", "1"]) == 1
    assert "seed was 0 and is 1" in capsys.readouterr().err
    assert main(["vae-variance", "--resume", str(part)]) == 130  # struck again
    draws[:] = range(11)
    assert main(["vae-variance", "--resume", str(part)]) == 0
    assert (part / "variance.csv").read_text() == whole
    (part / "variance.csv").write_text("epoch,k\n1,\n")
    with pytest.raises(UserError, match="expected the table that vae-variance wrote"):
        vae_variance(replace(few, out=None, resume=part))


def test_a_control_variate_reads_the_image_and_is_trained_on_new_ones() -> None:
    vae, images = make_vae(DIGITS, 64), load("digits").train
    settings = VAEVariance(run=Path(), records=10, warm_up=2, warm_up_records=20)
    draw = Gradient(settings, vae, images, "unordered_set_additive", 3)
    weights = dict(draw.estimate.named_parameters())
    assert weights["network.layers.0.weight"].shape[-1] == 64
    assert weights["network.layers.4.weight"].abs().max() > 0.0  # it was zero before the warm-up
    fixed = Gradient(replace(settings, warm_up_records=None), vae, images, draw.name, 3)
    other = dict(fixed.estimate.named_parameters())
    assert not torch.equal(weights["network.layers.4.bias"], other["network.layers.4.bias"])
    assert draw(0).isfinite().all()


def test_moving_averages_need_a_shorter_warm_up_than_a_network() -> None:
    settings, posterior = VAEVariance(run=Path(), warm_up=5000), uniform(2, 3)
    for name, steps in (("rloo_additive", 5000), ("double_control", REMEMBERED), ("rloo", 0)):
        made = METHODS[name].make(posterior)
        taken = warm_up_steps(made, settings) if METHODS[name].learns else 0
        assert taken == steps
    assert (
        warm_up_steps(METHODS["double_control"].make(posterior), replace(settings, warm_up=3)) == 3
    )
    rows = [Comparison(name, 4, 4, 4) for name in ("rloo_additive", "double_control")]
    measured = [
        Measurement(1, row.estimator, 4, 4, p, 1.0, 0.1, 9)
        for row in rows
        for p in ("encoder", "decoder", "both")
    ]
    table = variance_table(rows, measured, VAESettings().domain, settings)
    assert "for 5000 steps: RLOO, additive control variate.\n" in table
    assert f"for {REMEMBERED} steps: Double control variates.\n" in table
