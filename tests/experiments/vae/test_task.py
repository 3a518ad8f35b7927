from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from swor.experiments.vae.elbo_table import markdown
from swor.experiments.vae.gradient import Gradient
from swor.experiments.vae.run import vae as train_vae
from swor.experiments.vae.tables import Measurement, Row
from swor.experiments.vae.tables import markdown as variance_table
from torch import Tensor
from torch.distributions import Independent, OneHotCategorical, kl_divergence

from swor.cli import main
from swor.diagnostics.enumeration import exact
from swor.experiments.runs.errors import UserError
from swor.experiments.runs.images import Images, load
from swor.experiments.runs.task import Place, seeded
from swor.experiments.vae.curves import Curve, grouped, read_curve
from swor.experiments.vae.figures import Figures, curves_figure, vae_figures
from swor.experiments.vae.methods import METHODS, Method
from swor.experiments.vae.model import CategoricalVAE
from swor.experiments.vae.moments import log_variances
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.task import VAETask, build, evaluate, surrogate
from swor.experiments.vae.variance import Variance, comparisons, kept_models, vae_variance
from swor.samplers.distributions import support

DIGITS = VAE(dims=2, epochs=2, keep_every=1, cpu=True)


def small() -> CategoricalVAE:
    return CategoricalVAE(6, 2, 3, generator=seeded("small")).double()


def fixed_posterior(logits: Tensor) -> Independent:
    return Independent(OneHotCategorical(logits=logits, validate_args=False), 1)


def exact_negative_elbo(vae: CategoricalVAE, x: Tensor, posterior: Independent) -> Tensor:
    cost = exact(lambda z: vae.negative_log_likelihood(x, z), posterior)
    return cost + vae.divergence(posterior)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the digits, with REINFORCE as the paper's variance table has it."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    return train_vae(replace(DIGITS, estimator="reinforce", out=path))


def test_the_model_is_the_papers() -> None:
    vae = CategoricalVAE(784, 20, 10, generator=seeded("paper"))
    linear = [m for m in vae.modules() if isinstance(m, torch.nn.Linear)]
    widths = [784, 512, 256, 200, 256, 512, 784]
    assert [m.out_features for m in linear] == widths[1:]
    for layer in linear:
        bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.99 * bound < float(layer.weight.detach().abs().max()) <= bound
        assert not layer.bias.any()
    slopes = [m.negative_slope for m in vae.modules() if isinstance(m, torch.nn.LeakyReLU)]
    assert slopes == [0.1] * 4


def test_costs_are_those_of_torch() -> None:
    vae = small()
    x = torch.bernoulli(torch.full((5, 6), 0.5, dtype=torch.float64), generator=seeded("x"))
    posterior = vae.posterior(x)
    z = support(posterior).value
    logits = vae.pixel_logits(z)
    expected = F.binary_cross_entropy_with_logits(
        logits, x.unsqueeze(1).expand_as(logits), reduction="none"
    ).sum(-1)
    torch.testing.assert_close(vae.negative_log_likelihood(x, z), expected)
    prior = fixed_posterior(torch.zeros(5, 2, 3, dtype=torch.float64))
    kl = vae.divergence(posterior)
    torch.testing.assert_close(kl, kl_divergence(posterior, prior))
    torch.testing.assert_close(kl, exact(lambda z: vae.sampled_divergence(posterior, z), posterior))


UNBIASED = [
    ("unordered_set", 3),
    ("reinforce", 4),
    ("reinforce_no_baseline", 1),
    ("reinforce_shared_sampled_baseline", 1),
    ("sum_and_sample", 3),
    ("sum_and_sample_shared_sampled_baseline", 3),
    ("importance_weighted", 3),
    ("local_unordered_set", 2),
    ("relax", 1),
    ("arsm", 1),
    ("reinforce_moving_average", 2),
]


@pytest.mark.parametrize(("name", "k"), UNBIASED)
def test_the_surrogate_estimates_the_elbo_and_its_gradient(name: str, k: int) -> None:
    """By z-scores over many copies of an image, each with its own noise."""
    vae, copies = small(), 4000
    x = torch.tensor([1.0, 0, 0, 1, 1, 0], dtype=torch.float64).expand(copies, 6)
    logits = torch.randn(2, 3, dtype=torch.float64, generator=seeded("logits"))
    logits = logits.expand(copies, 2, 3).clone().requires_grad_()
    posterior = fixed_posterior(logits)
    truth = exact_negative_elbo(vae, x[:1], fixed_posterior(logits[:1]))
    (true_gradient,) = torch.autograd.grad(truth.sum(), logits)
    true_gradient = true_gradient[0]
    method = Method(name, 2, 3).double()
    if name == "relax":  # a control variate that is not zero
        torch.nn.init.normal_(method.control.layers[-1].weight, generator=seeded("control"))
    kl = vae.divergence(posterior)
    estimate = surrogate(vae, method, x, posterior, kl, k, seeded("noise", name))
    error = estimate.detach().std() / copies**0.5
    assert abs(float(estimate.detach().mean() - truth.detach())) < 4 * float(error) + 1e-9
    (gradient,) = torch.autograd.grad(estimate.sum(), logits)
    z = (gradient.mean(0) - true_gradient) / (gradient.std(0) / copies**0.5 + 1e-12)
    assert float(z.abs().max()) < 4


def test_the_decoder_learns_from_the_pathwise_term() -> None:
    vae = small()
    x = torch.tensor([1.0, 0, 0, 1, 1, 0], dtype=torch.float64).expand(4000, 6)
    posterior = vae.posterior(x)
    kl = vae.divergence(posterior)
    decoder = list(vae.decoder.parameters())
    truth = torch.autograd.grad(exact_negative_elbo(vae, x[:1], vae.posterior(x[:1])), decoder)
    loss = surrogate(vae, Method("unordered_set", 2, 3), x, posterior, kl, 4, seeded("path"))
    for estimate, expected in zip(torch.autograd.grad(loss.mean(), decoder), truth, strict=True):
        assert float((estimate - expected).norm() / expected.norm()) < 0.02


def test_the_encoder_runs_once_and_the_decoder_once_on_all_samples() -> None:
    task = VAETask(DIGITS, load("digits"))
    shapes: dict[str, list[torch.Size]] = {"encoder": [], "decoder": []}
    for name, seen in shapes.items():
        getattr(task.vae, name).register_forward_hook(
            lambda module, given, out, seen=seen: seen.append(given[0].shape)
        )
    task.loss(task.batch(Place(0, 0, 0)), seeded("noise"))
    assert shapes == {"encoder": [(200, 64)], "decoder": [(200, 4, 20)]}


def test_an_epoch_has_every_image_once_and_processes_share_it() -> None:
    images = torch.arange(40).reshape(20, 2).to(torch.uint8)
    task = VAETask(replace(DIGITS, batch_size=4), Images(images, images, images, (1, 2)))
    assert task.steps == 5
    epochs = []
    for epoch in (0, 1):
        places = [Place(0, epoch, step, rank, 2) for step in range(5) for rank in (0, 1)]
        epochs.append(torch.cat([task.batch(p) for p in places])[:, 0])
    assert sorted(epochs[0].tolist()) == sorted(epochs[1].tolist()) == images[:, 0].tolist()
    assert not torch.equal(epochs[0], epochs[1])


def test_two_shares_have_the_gradient_of_the_joined_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(
        METHODS["reinforce"], estimate=lambda f, dist, k, generator=None: exact(f, dist)
    )
    monkeypatch.setitem(METHODS, "reinforce", entry)
    task = VAETask(replace(DIGITS, estimator="reinforce", batch_size=8), load("digits"))
    task.model.double()

    def gradient(place: Place) -> Tensor:
        loss, _ = task.loss(task.batch(place).double(), seeded("noise"))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, task.model.parameters())])

    shares = [gradient(Place(0, 0, 0, rank, 2)) for rank in (0, 1)]
    torch.testing.assert_close(sum(shares) / 2, gradient(Place(0, 0, 0)))


def test_evaluation_is_the_elbo_with_the_analytic_kl() -> None:
    vae = small()
    images = torch.ones(2500, 6, dtype=torch.uint8)
    x = torch.ones(1, 6, dtype=torch.float64)
    truth = float(exact_negative_elbo(vae, x, vae.posterior(x)).detach())
    found = evaluate(vae.float(), images, seeded("evaluate"))
    assert found["negative_elbo"] == pytest.approx(truth, abs=0.05)
    assert found["kl"] == pytest.approx(
        float(vae.divergence(vae.posterior(x.float())).detach()), rel=1e-4
    )


def last_lines(path: Path) -> list[dict[str, object]]:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


TRAINED = ["unordered_set", "straight_through", "gumbel_softmax", "relax", "arsm", "disarm"]


@pytest.mark.parametrize("name", TRAINED)
def test_training_improves_the_elbo(name: str, tmp_path: Path) -> None:
    categories = 2 if name == "disarm" else 10
    settings = replace(DIGITS, estimator=name, k=2, categories=categories, learning_rate=3e-3)
    settings = replace(settings, out=tmp_path / "run")
    valid = [r for r in last_lines(train_vae(settings)) if r["split"] == "valid"]
    assert valid[-1]["negative_elbo"] < 0.8 * valid[0]["negative_elbo"]


def test_the_seed_decides_what_a_method_starts_from() -> None:
    images = load("digits")
    first, again, other = (
        VAETask(replace(DIGITS, estimator="relax", k=1, seed=seed), images).method.state_dict()
        for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_samples_are_the_papers() -> None:
    usual = {n: VAE(estimator=n).samples for n in ("unordered_set", "arsm", "straight_through")}
    assert usual == {"unordered_set": 4, "arsm": 1, "straight_through": 1}
    assert VAE(estimator="arsm", k=2).samples == 2


def test_a_moving_average_is_kept_from_step_to_step(tmp_path: Path) -> None:
    gradients = {}
    for name in ("reinforce_moving_average", "reinforce_no_baseline"):
        task = VAETask(replace(DIGITS, estimator=name, k=2), load("digits"))
        for step in range(2):
            task.model.zero_grad()
            loss, _ = task.loss(task.batch(Place(0, 0, step)), seeded("noise", step))
            loss.backward()
        gradients[name] = torch.cat([p.grad.flatten() for p in task.vae.encoder.parameters()])
    first, second = gradients.values()
    assert float(first.norm()) < 0.5 * float(second.norm())
    assert "method.average.average" in task_state("reinforce_moving_average")


def task_state(name: str) -> dict[str, Tensor]:
    return VAETask(replace(DIGITS, estimator=name), load("digits")).model.state_dict()


def test_learning_rates_are_the_papers() -> None:
    rates = {n: VAE(estimator=n).rate for n in ("unordered_set", "arsm", "relax")}
    assert rates == {"unordered_set": 1e-3, "arsm": 3e-4, "relax": 1e-4}
    assert VAE(estimator="arsm", learning_rate=1.0).rate == 1.0


def test_the_command_resumes_a_run(run: Path, tmp_path: Path) -> None:
    common = ["vae", "--dims", "2", "--estimator", "reinforce", "--cpu"]
    first, out = tmp_path / "run", str(tmp_path / "run")
    assert main([*common, "--epochs", "1", "--keep-every", "1", "--out", out]) == 0
    assert main(["vae", "--resume", out, "--epochs", "2"]) == 0
    assert last_lines(first) == last_lines(run)
    assert json.loads((first / "settings.json").read_text())["settings"]["epochs"] == 2
    assert main(["vae", f"--resume={out}"]) == 0  # nothing left to do


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--estimator", "none"], "there is no estimator 'none'; expected one of"),
        (["--estimator", "deterministic_sum_and_sample"], "does not apply here"),
        (["--estimator", "disarm"], "disarm does not apply here"),
        (["--dims", "1", "--k", "11"], "does not apply here: k is 11"),
        (["--batch-size", "0"], "batch_size is 0; expected more than 0"),
        (["--batch-size", "-4"], "batch_size is -4; expected more than 0"),
        (["--learning-rate", "-1"], "learning_rate is -1.0; expected more than 0"),
        (["--dims", "0"], "dims is 0; expected more than 0"),
        (["--categories", "1"], "categories is 1; expected at least 2"),
        (["--clip", "-1"], "clip is -1.0; expected more than 0"),
        (["--epochs", "-1"], "epochs is -1; expected a number of epochs"),
        (["--batch-size", "5000"], "Give a smaller --batch-size"),
        (["--resume", "nowhere"], "there is no nowhere/settings.json"),
        (["--data", "mnist", "--data-dir", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vae", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_run_is_resumed_with_its_own_settings(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vae", "--resume", str(run), "--k", "2"]) == 1
    assert "k was 4 and is 2" in capsys.readouterr().err
    assert main(["vae", "--resume", str(run), "--out", str(tmp_path / "other")]) == 1
    assert "Leave out --out" in capsys.readouterr().err
    assert main(["vae", "--out", str(run)]) == 1
    assert "nothing is ever overwritten" in capsys.readouterr().err


def test_a_killed_command_continues_to_the_same_numbers(tmp_path: Path) -> None:
    """In the middle of an epoch, with a control variate that learns too."""
    common = ["vae", "--estimator", "relax", "--dims", "2", "--epochs", "2", "--cpu"]
    options = [*common, "--log-every", "2", "--checkpoint-every", "2", "--out"]
    assert main([*options, str(tmp_path / "whole")]) == 0
    script = "import os, signal, sys; from swor.cli import main; "
    script += "from swor.experiments.vae.task import VAETask as T; plain, calls = T.loss, []\n"
    script += "def struck(*a):\n"
    script += "    calls.append(0)\n"
    script += "    if len(calls) == 12: os.kill(os.getpid(), signal.SIGKILL)\n"
    script += "    return plain(*a)\n"
    script += "T.loss = struck; main(sys.argv[1:])"
    killed = subprocess.run(
        [sys.executable, "-c", script, *options, str(tmp_path / "run")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert main(["vae", "--resume", str(tmp_path / "run")]) == 0
    assert last_lines(tmp_path / "run") == last_lines(tmp_path / "whole")


def test_an_interrupted_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = VAETask.loss

    def struck(self: VAETask, batch: Tensor, generator: torch.Generator) -> object:
        signal.raise_signal(signal.SIGINT)
        return plain(self, batch, generator)

    monkeypatch.setattr(VAETask, "loss", struck)
    assert main(["vae", "--dims", "2", "--cpu", "--out", str(tmp_path / "run")]) == 130
    assert f"swor vae --resume {tmp_path / 'run'}" in capsys.readouterr().out


def test_log_variances_are_exact_for_known_draws() -> None:
    draws = torch.randn(30, 5, dtype=torch.float64, generator=seeded("draws")) + 10.0
    same = torch.full((5,), 0.1)
    found, half, none = log_variances(lambda i: [draws[i], draws[i, :2], same], 30)
    assert found.value == pytest.approx(float(draws.var(0).sum().log()), abs=1e-10)
    assert half.value == pytest.approx(float(draws[:, :2].var(0).sum().log()), abs=1e-10)
    assert none == (-torch.inf, 0.0)  # a model that leaves nothing to chance


def test_the_variance_of_the_data_comes_on_top() -> None:
    trained = replace(DIGITS, estimator="reinforce")
    images = load("digits").train
    vae = build(trained, 64)
    fixed, new = (
        log_variances(
            Gradient(Variance(run=Path(), new_minibatch=new), vae, images, "unordered_set", 4), 40
        )
        for new in (False, True)
    )
    assert new[1].value > fixed[1].value + 1.0  # the decoder, whose gradient the data dominates


def test_the_gradient_is_that_of_the_mean_loss() -> None:
    """With all outcomes in the sample nothing is left to chance."""
    trained = VAE(dims=1, categories=3)
    images = load("digits").train
    vae = build(trained, 64)
    draw = Gradient(Variance(run=Path(), records=10), vae, images, "unordered_set", 3)
    encoder, decoder, both = draw(0)
    loss = exact_negative_elbo(vae, images[:10].float(), vae.posterior(images[:10].float())).mean()
    for found, network in ((encoder, vae.encoder), (decoder, vae.decoder)):
        true = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
        expected = torch.cat([g.flatten() for g in true])
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert torch.equal(both, torch.cat([encoder, decoder]))


@pytest.mark.parametrize("changes", [{}, {"data": "digits"}, {"categories": 5}, {"dims": 3}])
def test_the_papers_figures_stand_beside_what_they_are_of(changes: dict[str, object]) -> None:
    domain = replace(VAE(data="mnist", dims=20), **changes).domain
    row = Row("unordered_set", 4, 4, 4)
    measured = [
        Measurement(1, "unordered_set", 4, 4, p, 1.0, 0.1, 9)
        for p in ("encoder", "decoder", "both")
    ]
    assert ("7.05" in variance_table([row], measured, domain)) == (changes == {})


def test_a_temperature_is_not_trained_on_the_model_it_is_measured_on() -> None:
    settings, images = Variance(run=Path(), control_steps=2), load("digits").train
    draw = Gradient(settings, build(DIGITS, 64), images, "straight_through", 1)
    assert float(draw.method.log_temperature.detach()) == 0.0


def test_estimators_are_compared_at_equal_evaluations() -> None:
    rows = {r.estimator: r[1:] for r in comparisons(Variance(run=Path()), VAE())}
    assert rows["unordered_set"] == (4, 4, 4)
    assert rows["reinforce_shared_sampled_baseline"] == (1, 4, 3)
    assert rows["arsm"] == (1, 1, 1)


@pytest.fixture
def few(run: Path, tmp_path: Path) -> Variance:
    """A small table."""
    return Variance(
        run=run,
        estimators=("relax", "reinforce_shared_sampled_baseline", "unordered_set"),
        repetitions=4,
        repetitions_before=3,
        records=10,
        control_steps=2,
        epochs=(0, 2),
        out=tmp_path / "variance",
    )


def test_the_variance_command_writes_its_tables(few: Variance, tmp_path: Path) -> None:
    folder = vae_variance(few)
    with (folder / "variance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {r["epoch"] for r in rows} == {"0", "2"}
    assert {r["part"] for r in rows} == {"encoder", "decoder", "both"}
    table = (folder / "variance.md").read_text()
    assert table.count("\n") == 2 + 3
    assert "7.05" not in table  # the paper's figures are for MNIST
    assert (folder / "variance.png").stat().st_size > 0
    with pytest.raises(UserError, match="models of the epochs"):
        vae_variance(replace(few, epochs=(7,), out=tmp_path / "none"))
    (few.run / "models" / "epoch-0009.part").touch()  # of a run that was killed
    assert sorted(kept_models(few.run, ())) == [0, 1, 2]
    for changes, message in [
        ({"repetitions": 2}, "expected at least 3"),
        ({"records": 0}, "records is 0; expected more than 0"),
        ({"records": 10**6}, "expected at most the 1400 training images"),
        ({"estimators": ()}, "no estimators were given"),
        ({"estimators": ("unordered_set",), "k": 101}, "does not apply here: k is 101"),
    ]:
        with pytest.raises(UserError, match=message):
            vae_variance(replace(few, **changes, out=tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()


def test_an_interrupted_measurement_continues_to_the_same_numbers(
    few: Variance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = (vae_variance(few) / "variance.csv").read_text()
    plain, draws = Gradient.__call__, []

    def struck(self: Gradient, number: int) -> tuple[Tensor, Tensor, Tensor]:
        draws.append(self.method.name)
        if len(draws) == 11:  # in the fourth case, of twelve
            raise KeyboardInterrupt
        return plain(self, number)

    monkeypatch.setattr(Gradient, "__call__", struck)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        vae_variance(replace(few, out=part))
    assert f"swor vae-variance --resume {part}" in capsys.readouterr().out
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


def test_the_figures_are_drawn(run: Path, tmp_path: Path) -> None:
    folder = vae_figures(Figures(runs=(run,), columns=5, out=tmp_path / "figures"))
    assert {p.name for p in folder.iterdir()} == {
        "curves.csv",
        "curves.md",
        "curves.png",
        f"images-{run.name}.png",
        "settings.json",
    }
    curves = [read_curve(run, "digits", split, 5) for split in ("train", "valid")]
    better = curves[0]._replace(
        settings=replace(curves[0].settings, estimator="arsm"),
        smooth=[s - 1 for s in curves[0].smooth],
    )
    legend = curves_figure([curves[0], better, curves[1]]).axes[0].get_legend()
    values = [float(t.get_text().split()[0]) for t in legend.get_texts()]
    assert values == sorted(values)
    assert values[1] == round(min(curves[0].smooth), 1)
    for changes, message in [
        ({"runs": ()}, "no runs were given"),
        ({"runs": (run, run.parent / "." / run.name)}, "a run was given twice"),
        ({"smoothing": 0}, "smoothing is 0"),
        ({"columns": 0}, "columns is 0; expected from 1 to 197"),
        ({"columns": 198}, "columns is 198; expected from 1 to 197"),
    ]:
        with pytest.raises(UserError, match=message):
            vae_figures(replace(Figures(runs=(run,), out=tmp_path / "refused"), **changes))
    assert not (tmp_path / "refused").exists()


def curve(split: str, values: list[float], **changes: object) -> Curve:
    """A curve with a point at the end of every epoch."""
    epochs = [float(i + 1) for i in range(len(values))]
    settings = VAE(data="mnist", estimator="reinforce", **changes)
    return Curve("run", settings, split, epochs, values, values)


def test_runs_that_differ_in_their_seed_are_together() -> None:
    curves = [
        curve("valid", [10.0, 8.0, 5.0], seed=0),
        curve("valid", [12.0, 6.0], seed=1, epochs=7),  # stopped: epochs may differ
        curve("valid", [20.0, 20.0], k=8),
        curve("train", [3.0, 2.0]),
        curve("train", [5.0, 1.0], seed=1),
        curve("train", [9.0, 9.0], k=8),
    ]
    first, second = grouped(curves[:3])
    assert first.name == "REINFORCE w.r., built-in, k = 4, 2 runs"
    assert second.name == "REINFORCE w.r., built-in, k = 8"
    assert [len(ax.get_legend().get_texts()) for ax in curves_figure(curves).axes] == [2, 2]
    assert markdown(curves).splitlines()[4:] == [
        f"| {first.name} | 10.0, 12.0 | 8.0, 6.0 | 5.0 | 5.0, 6.0 | 2.0, 1.0 | 89.8 | 70.4 |",
        f"| {second.name} | 20.0 | 20.0 |  | 20.0 | 9.0 | 90.8 | 70.3 |",
    ]


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "accelerate": [
        *("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
        *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
    ],
}


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    """With all outcomes in the sample nothing is left to chance, and the numbers are the same."""
    exact = ["--dims", "1", "--categories", "4", "--k", "4"]
    two = launched(LAUNCHERS["torchrun"], exact, tmp_path / "two")
    one = launched([], exact, tmp_path / "one")
    elbos = [[r["negative_elbo"] for r in run] for run in (two, one)]
    assert elbos[0] == pytest.approx(elbos[1], rel=1e-4)
    assert abs(elbos[1][0] - elbos[1][2]) > 1.0  # it has learnt something


@pytest.mark.slow
def test_the_command_runs_on_two_processes(tmp_path: Path) -> None:
    """With either launcher to the same numbers, which are not those of one process."""
    two, same, one = (
        launched(launcher, ["--dims", "2"], tmp_path / name)
        for name, launcher in {**LAUNCHERS, "alone": []}.items()
    )
    assert [r["split"] for r in two] == ["valid", "train", "valid"]
    assert two == same
    assert two[0] == one[0]  # the same weights and validation to begin with
    assert two[1] != one[1]  # every process has noise of its own


def launched(launcher: list[str], options: list[str], out: Path) -> list[dict[str, object]]:
    """The metrics of a run of one epoch."""
    start = ["-m", *launcher] if launcher else []
    command = [*start, "-m", "swor", "vae", "--epochs", "1", "--cpu", *options]
    subprocess.run(
        [sys.executable, *command, "--out", str(out)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    return last_lines(out)
