"""Models in the format of the authors' release: against an independent reading of it, and the real file."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.tsp.model import load_attention_model
from reproduction.tsp.pretrained import RELEASED, read_pretrained, released_file, sha256
from reproduction.tsp.problem import validation_instances
from reproduction.tsp.rollout import greedy_lengths

HEADS, WIDTH, HIDDEN, LAYERS = 2, 8, 12, 2
POSITIVE = ("running_var", "normalizer.weight")
FOLDER = Path(os.environ.get("SWOR_DATA", ""), "attention-learn-to-route")
real = pytest.mark.skipif(
    not (FOLDER / "tsp_20.pt").is_file() and not (FOLDER / "pretrained").is_dir(),
    reason="SWOR_DATA names no folder with attention-learn-to-route",
)


def made_up() -> dict[str, Tensor]:
    """Random weights under the names and in the shapes of the release."""
    shapes: dict[str, tuple[int, ...]] = {
        "W_placeholder": (2 * WIDTH,),
        "init_embed.weight": (WIDTH, 2),
        "init_embed.bias": (WIDTH,),
        "project_node_embeddings.weight": (3 * WIDTH, WIDTH),
        "project_fixed_context.weight": (WIDTH, WIDTH),
        "project_step_context.weight": (WIDTH, 2 * WIDTH),
        "project_out.weight": (WIDTH, WIDTH),
    }
    for layer in range(LAYERS):
        name = f"embedder.layers.{layer}"
        for kind in ("query", "key", "val"):
            shapes[f"{name}.0.module.W_{kind}"] = (HEADS, WIDTH, WIDTH // HEADS)
        shapes[f"{name}.0.module.W_out"] = (HEADS, WIDTH // HEADS, WIDTH)
        for norm, kind in itertools.product(
            (1, 3), ("weight", "bias", "running_mean", "running_var")
        ):
            shapes[f"{name}.{norm}.normalizer.{kind}"] = (WIDTH,)
        shapes |= {
            f"{name}.2.module.0.weight": (HIDDEN, WIDTH),
            f"{name}.2.module.0.bias": (HIDDEN,),
            f"{name}.2.module.2.weight": (WIDTH, HIDDEN),
            f"{name}.2.module.2.bias": (WIDTH,),
        }
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(s, generator=generator) / 4.0 for name, s in shapes.items()}
    weights["init_embed.weight"] *= 4.0  # so that the nodes, and with them the tours, differ
    return {name: x.exp() if name.endswith(POSITIVE) else x for name, x in weights.items()}


def written(path: Path, weights: dict[str, Tensor]) -> Path:
    torch.save({"model": weights}, path)
    return path


def embeddings(w: dict[str, Tensor], x: Tensor) -> Tensor:
    """The encoder of Kool et al. (2019), of one instance, head by head: (nodes, width)."""

    def normalised(name: str, h: Tensor) -> Tensor:
        mean, var = w[f"{name}.normalizer.running_mean"], w[f"{name}.normalizer.running_var"]
        h = (h - mean) / (var + 1e-5).sqrt()
        return h * w[f"{name}.normalizer.weight"] + w[f"{name}.normalizer.bias"]

    h = x @ w["init_embed.weight"].T + w["init_embed.bias"]
    for layer in range(LAYERS):
        name = f"embedder.layers.{layer}"
        out = torch.zeros_like(h)
        for head in range(HEADS):
            query, key, value = (
                h @ w[f"{name}.0.module.W_{m}"][head] for m in ("query", "key", "val")
            )
            attention = (query @ key.T / math.sqrt(WIDTH / HEADS)).softmax(-1)
            out += attention @ value @ w[f"{name}.0.module.W_out"][head]
        h = normalised(f"{name}.1", h + out)
        hidden = (h @ w[f"{name}.2.module.0.weight"].T + w[f"{name}.2.module.0.bias"]).relu()
        out = hidden @ w[f"{name}.2.module.2.weight"].T + w[f"{name}.2.module.2.bias"]
        h = normalised(f"{name}.3", h + out)
    return h


def log_prob(w: dict[str, Tensor], x: Tensor, tour: tuple[int, ...]) -> Tensor:
    """The decoder of Kool et al. (2019): log-probability of one tour of one instance."""
    h = embeddings(w, x)
    glimpse_key, glimpse_value, logit_key = (h @ w["project_node_embeddings.weight"].T).chunk(3, -1)
    total = torch.zeros((), dtype=x.dtype)
    for t, node in enumerate(tour):
        left = [i for i in range(len(tour)) if i not in tour[:t]]
        context = torch.cat([h[tour[0]], h[tour[t - 1]]]) if t else w["W_placeholder"]
        query = w["project_fixed_context.weight"] @ h.mean(0)
        query = query + w["project_step_context.weight"] @ context
        heads = []
        for part in torch.arange(WIDTH).chunk(HEADS):
            scores = glimpse_key[left][:, part] @ query[part] / math.sqrt(WIDTH / HEADS)
            heads.append(scores.softmax(-1) @ glimpse_value[left][:, part])
        glimpse = w["project_out.weight"] @ torch.cat(heads)
        logits = 10 * torch.tanh(logit_key[left] @ glimpse / math.sqrt(WIDTH))
        total = total + logits.log_softmax(-1)[left.index(node)]
    return total


def test_the_model_has_the_log_probabilities_of_the_format(tmp_path: Path) -> None:
    weights = made_up()
    model = read_pretrained(written(tmp_path / "model.pt", weights)).double()
    instances = torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(1)).double()
    tours = list(itertools.permutations(range(5)))
    found = model(instances).log_prob(torch.tensor(tours).expand(2, -1, -1))
    exact = {name: x.double() for name, x in weights.items()}
    expected = torch.stack([torch.stack([log_prob(exact, x, t) for t in tours]) for x in instances])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert found.std() > 0.1  # the tours differ


def test_a_model_is_written_like_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = written(tmp_path / "model.pt", made_up()), tmp_path / "run"
    arguments = ["--nodes", "5", "--file", str(file), "--validation-size", "10", "--out", str(out)]
    assert main(["tsp-pretrained", *arguments]) == 0
    assert "not the released one" in capsys.readouterr().out
    table = pd.read_csv(out / "validation.csv")
    lengths = greedy_lengths(read_pretrained(file), validation_instances(10, 5))
    assert table["length"].tolist() == pytest.approx([float(lengths.mean())])
    assert table["gap"][0] > 0
    variance = ["--estimators", "rloo", "unordered_set", "--repetitions", "10", "--reference", "10"]
    arguments = [*variance, "--batch-size", "4", "--out", str(tmp_path / "variance")]
    assert main(["tsp-variance", str(out), *arguments]) == 0
    assert set(pd.read_csv(tmp_path / "variance" / "variance.csv")["step"]) == {250_000}
    sizes = f"--width {WIDTH} --heads {HEADS} --layers {LAYERS} --hidden {HIDDEN} --nodes 5"
    start = ["--start-from", str(out / "model.safetensors"), "--steps", "1", "--batch-size", "4"]
    start += ["--validation-size", "10", "--out", str(tmp_path / "trained")]
    assert main(["tsp", *sizes.split(), *start]) == 0


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda w: {}, "W_query"),
        (lambda w: w | {"other.weight": torch.ones(2)}, "other"),
        (lambda w: w | {"W_placeholder": torch.ones(6)}, "size mismatch"),
        (lambda w: w | {"init_embed.bias": torch.full((WIDTH,), math.nan)}, "not finite"),
        (lambda w: w | {"init_embed.bias": "text"}, "no entry 'model'"),
        (lambda w: {k: x for k, x in w.items() if k != "project_out.weight"}, "project_glimpse"),
    ],
)
def test_another_content_is_named(damage, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "model.pt", damage(made_up()))
    with pytest.raises(UserError, match=said) as error:
        read_pretrained(path)
    assert str(path) in str(error.value) and "attention-learn-to-route" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no model at all"])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        read_pretrained(path)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"model": made_up(), "other": os.system}, path)
    with pytest.raises(UserError, match="cannot be read"):
        read_pretrained(path)


def test_a_missing_file_says_where_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_pretrained(tmp_path / "model.pt")
    monkeypatch.setenv("SWOR_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"github.com/wouterkool/attention-learn-to-route"):
        released_file(20)
    with pytest.raises(UserError, match=r"nodes is 30; expected one of 20, 50, 100"):
        released_file(30)
    copy = tmp_path / "attention-learn-to-route" / "pretrained" / "tsp_20"
    copy.mkdir(parents=True)
    (copy / "epoch-99.pt").touch()
    assert released_file(20) == copy / "epoch-99.pt"


@real
def test_the_released_model_finds_short_tours(tmp_path: Path) -> None:
    assert sha256(released_file(20)) == RELEASED[20]
    out = tmp_path / "run"
    assert main(["tsp-pretrained", "--validation-size", "100", "--out", str(out)]) == 0
    assert 0.1 < pd.read_csv(out / "validation.csv")["gap"][0] < 0.5
    model = load_attention_model(out / "model.safetensors")
    assert sum(p.numel() for p in model.parameters()) == 708_608
