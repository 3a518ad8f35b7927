"""The command ``tsp-variance``: gradients at equal numbers of tours, variance and bias, resuming."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

import swor
from reproduction.cli import main
from reproduction.harness.appearance import is_biased
from reproduction.harness.checkpoint import write_checkpoint
from reproduction.harness.errors import UserError
from reproduction.harness.measurements import squared_norm
from reproduction.harness.models import kept_models, load_model
from reproduction.harness.settings import read_settings
from reproduction.harness.tables import read_table
from reproduction.harness.task import seeded
from reproduction.tsp.command import tsp, tsp_variance
from reproduction.tsp.measurement_settings import BLOCKS, TSPVariance
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.problem import random_instances, tour_length
from reproduction.tsp.rollout import greedy_lengths
from reproduction.tsp.settings import SINGLE, ModelSettings, TSPSettings
from reproduction.tsp.task import TOUR_ESTIMATORS
from reproduction.tsp.variance import (
    Gradient,
    Measuring,
    PolicyRow,
    Subject,
    VarianceRow,
    model_to_measure,
)
from reproduction.tsp.variance_tables import with_ratios
from swor.estimators.baselines import batch_mean

SUM_AND_SAMPLE = "sum_and_sample_shared_sampled_baseline"
SMALL = ModelSettings(width=8, heads=2, layers=1, hidden=8)
TINY = TSPSettings(
    nodes=5,
    estimator="rloo",
    steps=20,
    batch_size=8,
    learning_rate=1e-2,
    validate_every=20,
    validation_size=2,
    rollout_size=2,
    keep_steps=(0, 20),
    model=SMALL,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two kept models."""
    return tsp(replace(TINY, out=tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture
def few(run: Path, tmp_path: Path) -> TSPVariance:
    """A small measurement."""
    return TSPVariance(
        run=run, batch_size=3, k=3, repetitions=12, reference=11, out=tmp_path / "variance"
    )


@pytest.fixture
def subject(run: Path) -> Subject:
    """The trained model, and the instances that the command draws."""
    models = kept_models(run, "step")
    model = model_to_measure(SMALL)
    load_model(models[20], model)
    return Subject(model, models, random_instances(3, 5, generator=seeded(0, "instances")))


def direct(subject: Subject, name: str, k: int, noise: torch.Generator) -> Tensor:
    """The gradient of the mean loss, written out for the whole family of estimators."""
    model, x = subject.model, subject.instances
    greedy = greedy_lengths(model.eval(), x).unsqueeze(-1)
    policy = model.train()(x)
    if name in ("rloo", *SINGLE):
        sample = swor.ancestral_sample(policy, k, generator=noise)
        cost = tour_length(x, sample.value)
        others = (cost.sum() - cost) / (cost.numel() - 1)
        own = (cost.sum(-1, keepdim=True) - cost) / (k - 1)
        baseline = {"reinforce_rollout": greedy, "reinforce_batch_mean": others}.get(name, own)
        loss = (sample.log_p * (cost - baseline)).mean()
    elif name == SUM_AND_SAMPLE:
        sample = swor.stochastic_beam_search(policy, k - 1, generator=noise)
        one_more = tour_length(x, swor.ancestral_sample(policy, 1, generator=noise).value)
        weights = swor.sum_and_sample(sample)
        loss = weights.loss(tour_length(x, sample.value), baseline=one_more).mean()
    else:
        beams = name == "risk_beam_search"
        sample = (
            swor.beam_search(policy, k)
            if beams
            else swor.stochastic_beam_search(policy, k, generator=noise)
        )
        rule = getattr(swor, "risk" if beams else name)
        loss = rule(sample).loss(tour_length(x, sample.value)).mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_a_row_is_what_a_direct_computation_gives(few: TSPVariance, subject: Subject) -> None:
    folder = tsp_variance(replace(few, steps=(20,)))
    rows = read_table(folder / "variance.csv", VarianceRow, "tsp-variance")
    assert [m.estimator for m in rows] == list(TOUR_ESTIMATORS)

    def gradients(purpose: str, name: str, count: int) -> Tensor:
        noise = [seeded(0, purpose, 20, name, i) for i in range(count)]
        return torch.stack([direct(subject, name, 3, n) for n in noise]).double()

    reference = gradients("reference", "unordered_set", 11)
    for m in rows:
        draws = gradients("noise", m.estimator, m.repetitions)
        assert m.repetitions == (BLOCKS if m.estimator == "risk_beam_search" else 12)
        assert m.k == (2 if m.estimator == SUM_AND_SAMPLE else 3)
        assert m.variance == pytest.approx(float(draws.var(0).sum()), rel=1e-4, abs=1e-9)
        blocks = [
            torch.stack([x[number * BLOCKS // len(x) == b].mean(0) for b in range(BLOCKS)])
            for x in (draws, reference)
            for number in [torch.arange(len(x))]
        ]
        means = blocks[0] - blocks[1]
        spread = means.var(0).sum() / BLOCKS  # of the mean, by which its square is too large
        bias = float(means.mean(0).square().sum() - spread)
        assert m.squared_bias == pytest.approx(bias, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["reinforce_rollout", "reinforce_batch_mean"])
def test_k_tours_of_an_instance_are_single_tours_of_repeated_instances(
    name: str, few: TSPVariance, subject: Subject
) -> None:
    """Batch norm has the same statistics, and the estimator the same terms."""
    x, model = subject.instances, subject.model
    found = Gradient(few, subject, 20, name)(0)
    tours = swor.ancestral_sample(model(x), 3, generator=seeded(0, "noise", 20, name, 0)).value
    repeated = x.repeat_interleave(3, dim=0)
    policy = model(repeated)
    single = tours.reshape(9, 1, 5)
    sample = swor.Sample(single, policy.log_prob(single), scheme="with_replacement")
    cost = tour_length(repeated, single)
    baseline = batch_mean(cost)
    if name == "reinforce_rollout":
        baseline = greedy_lengths(model.eval(), repeated).unsqueeze(-1)
    loss = swor.single_sample(sample).loss(cost, baseline=baseline).mean()
    expected = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(
        found, torch.cat([g.flatten() for g in expected]), rtol=1e-3, atol=1e-5
    )


def test_greedy_rollouts_do_not_depend_on_what_was_measured(
    few: TSPVariance, subject: Subject
) -> None:
    before = greedy_lengths(subject.model.eval(), subject.instances)
    draw = Gradient(few, subject, 20, "rloo")
    first, *_ = [draw(i) for i in range(3)]
    state = {n: b for n, b in subject.model.named_buffers() if n.endswith(("mean", "var"))}
    kept = AttentionModel(SMALL)
    load_model(subject.models[20], kept)
    assert all(torch.equal(b, kept.state_dict()[n]) for n, b in state.items())
    assert torch.equal(greedy_lengths(subject.model.eval(), subject.instances), before)
    assert torch.equal(Gradient(few, subject, 20, "rloo")(0), first)


def test_a_squared_norm_is_unbiased_and_knows_its_error() -> None:
    noise = torch.randn(4000, BLOCKS, 30, dtype=torch.float64, generator=seeded("norm"))
    mean = torch.linspace(0.0, 0.3, 30, dtype=torch.float64)
    found = torch.tensor([squared_norm(mean + x) for x in noise])
    value, error = found.unbind(-1)
    truth = float(mean.square().sum())
    assert abs(float(value.mean()) - truth) < 4 * float(value.std()) / 4000**0.5
    assert 1.0 < float(error.square().mean() / value.var()) < 2.25  # the jackknife is cautious
    assert float((mean + noise).mean(1).square().sum(-1).mean()) > 2 * truth  # what is corrected


def test_unbiased_estimators_have_no_bias_and_beam_search_has(few: TSPVariance) -> None:
    settings = replace(few, steps=(0,), repetitions=150, reference=300)
    rows = read_table(tsp_variance(settings) / "variance.csv", VarianceRow, "tsp-variance")
    z = {m.estimator: m.squared_bias / m.squared_bias_error for m in rows}
    for name in TOUR_ESTIMATORS:
        assert is_biased(name) or abs(z[name]) < 4
    assert z["risk_beam_search"] > 4
    gain = with_ratios(pd.DataFrame(rows)).set_index("estimator")["gain"]
    assert gain["rloo"] == 1.0
    assert gain["risk_beam_search"] == float("inf")
    assert gain["unordered_set"] > 0.9 > gain[SUM_AND_SAMPLE]


def test_ratios_have_the_errors_of_both() -> None:
    usual = VarianceRow(0, "rloo", 4, 9, 2.0, 0.2, 0.0, 0.1)
    other = VarianceRow(0, "risk", 4, 9, 1.0, 0.1, 0.5, 0.05)
    both = with_ratios(pd.DataFrame([usual, other])).set_index("estimator")
    found = both.loc["risk"]
    assert found["gain"] == 2.0
    assert found["gain_error"] == pytest.approx(2.0 * (2 * 0.1**2) ** 0.5)
    assert found["relative_squared_bias"] == 0.25
    assert both.loc["rloo", "gain_error"] == 0.0
    assert both.loc["rloo", "relative_squared_bias_error"] == pytest.approx(0.05)
    alone = with_ratios(pd.DataFrame([other]))  # RLOO has not been measured yet
    assert alone["gain"].isna().all()


def test_the_command_writes_its_tables(few: TSPVariance, tmp_path: Path) -> None:
    folder = tsp_variance(few)
    with (folder / "variance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(r["step"], r["estimator"]) for r in rows} == {
        (step, name) for step in ("0", "20") for name in TOUR_ESTIMATORS
    }
    policies = read_table(folder / "policies.csv", PolicyRow, "tsp-variance")
    assert [p.step for p in policies] == [0, 20]
    assert policies[0].log_p < policies[1].log_p < 0.0  # a trained policy is more certain
    assert policies[0].duplicates < policies[1].duplicates < 1.0
    table = (folder / "variance.md").read_text()
    assert table.count("| step 0 | step 20 |") == 3
    assert "3 instances, 3 tours of each" in table
    names = {path.name for path in folder.iterdir()} - {".lock"}
    assert names == {"variance.csv", "policies.csv", "variance.md", "variance.png", "settings.json"}
    for changes, message in [
        ({"repetitions": 9}, "repetitions is 9; expected at least 10"),
        ({"k": 1}, "k is 1; expected at least 2"),
        ({"k": 121}, "only 120 tours of 5 nodes"),
        ({"estimators": ("risk",)}, "expected rloo among them"),
        ({"steps": (3,)}, r"models of the steps \[0, 20\]; expected \[3\]"),
    ]:
        with pytest.raises(UserError, match=message):
            tsp_variance(replace(few, **changes, out=tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("at", [5, 20, 80])  # in the reference, the first estimator, and later
def test_an_interrupted_measurement_continues_to_the_same_numbers(
    few: TSPVariance,
    at: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = replace(few, estimators=("rloo", "unordered_set", "risk"))
    whole = tsp_variance(few)
    plain, draws = Gradient.__call__, []

    def struck(self: Gradient, number: int) -> Tensor:
        draws.append(0)
        if len(draws) == at:
            raise KeyboardInterrupt
        return plain(self, number)

    monkeypatch.setattr(Gradient, "__call__", struck)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        tsp_variance(replace(few, out=part))
    assert f"python -m reproduction tsp-variance --resume {part}" in capsys.readouterr().out
    done = len(draws) - 1
    assert main(["tsp-variance", "--resume", str(part), "--k", "4"]) == 1
    assert "k was 3 and is 4" in capsys.readouterr().err
    assert main(["tsp-variance", "--resume", str(part)]) == 0
    assert (len(draws) < 2 * (11 + 3 * 12) + done) == (
        at > 11
    )  # what was whole is not measured again
    for name in ("variance.csv", "policies.csv", "variance.md"):
        assert (part / name).read_text() == (whole / name).read_text()
    (part / "variance.csv").write_text("step,k\n1,\n")
    with pytest.raises(UserError, match="expected the table that tsp-variance wrote"):
        tsp_variance(replace(few, out=None, resume=part))


def test_a_resumed_measurement_may_have_more_models_and_estimators(
    few: TSPVariance, tmp_path: Path
) -> None:
    few = replace(few, estimators=("rloo", "unordered_set", "risk"))
    whole = tsp_variance(few)
    part = tmp_path / "part"
    tsp_variance(replace(few, steps=(20,), estimators=("rloo", "risk"), out=part))
    more = ["--steps", "0", "--estimators", *few.estimators]
    assert main(["tsp-variance", "--resume", str(part), *more]) == 0
    assert "| – |" in (part / "variance.md").read_text()  # one estimator lacks one model
    assert main(["tsp-variance", "--resume", str(part), "--steps", "0", "20"]) == 0
    assert (part / "variance.md").read_text() == (whole / "variance.md").read_text()
    for name in ("variance.csv", "policies.csv"):
        found, expected = ((f / name).read_text().splitlines() for f in (part, whole))
        assert sorted(found) == sorted(expected)
    kept = read_settings(TSPVariance, part)
    assert (kept.steps, kept.estimators) == ((0, 20), few.estimators)


def test_a_damaged_reference_is_named(few: TSPVariance, tmp_path: Path, monkeypatch) -> None:
    few = replace(few, steps=(0,), estimators=("rloo",), out=tmp_path / "part")
    plain = Measuring.estimator

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Measuring, "estimator", stopped)
    with pytest.raises(KeyboardInterrupt):
        tsp_variance(few)
    monkeypatch.setattr(Measuring, "estimator", plain)
    again, kept = replace(few, out=None, resume=few.out), tmp_path / "part" / "reference-0.pt"
    whole = kept.read_bytes()
    for content in (b"", whole[:-9], whole[:900] + b"x" + whole[901:]):
        kept.write_bytes(content)
        with pytest.raises(UserError, match=r"reference-0\.pt cannot be read"):
            tsp_variance(again)
    write_checkpoint(kept, {"means": torch.zeros(3)})
    with pytest.raises(UserError, match=r"reference-0\.pt does not hold.*Remove the file"):
        tsp_variance(again)
    kept.unlink()
    tsp_variance(again)
