"""The Attention Models that Kool, van Hoof and Welling (2019) trained for 100 epochs, as models of ours.

They are published at https://github.com/wouterkool/attention-learn-to-route, under the MIT licence, as
``pretrained/tsp_20/epoch-99.pt``, and so for 50 and 100 nodes. A file holds the weights of the network that
:mod:`reproduction.tsp.model` describes under other names, and with a matrix for each head of an attention,
(heads, width, width / heads) from the nodes, and (heads, width / heads, width) back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from reproduction.harness.errors import UserError, readable
from reproduction.harness.images import VARIABLE
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.settings import ModelSettings

HOME = "https://github.com/wouterkool/attention-learn-to-route"
RELEASED = {
    20: "cf596c0152c61b1f84348b408b87073212fa48ef24ccd8db4d9f7c0fdc28fe18",
    50: "10e0e882f17a15ae44da04d9d8939ce599d3cf133c0593649a066608ff51ab43",
    100: "eefdf5496cc1a15e1b95b0a3025e1bcf703279d22aebc19b5b57c80ca8e3200a",
}
"""SHA-256 of the published files, by the number of nodes that the models were trained on."""

SAME = {
    "init_embed": "encoder.embed",
    "project_node_embeddings": "decoder.project_nodes",
    "project_fixed_context": "decoder.project_graph",
    "project_out": "decoder.project_glimpse",
}
SAME_IN_LAYER = {
    "1.normalizer": "norm_attention",
    "2.module.0": "feed_forward.0",
    "2.module.2": "feed_forward.2",
    "3.normalizer": "norm_feed_forward",
}
"""Parts with the same content under another name: theirs, and ours."""


def released_file(nodes: int) -> Path:
    """Return the published file in the folder that SWOR_DATA names, which may have a copy of the repository.

    The file is ``attention-learn-to-route/pretrained/tsp_20/epoch-99.pt``, or
    ``attention-learn-to-route/tsp_20.pt``.
    """
    folder = Path(os.environ.get(VARIABLE) or ".", "attention-learn-to-route")
    places = (folder / "pretrained" / f"tsp_{nodes}" / "epoch-99.pt", folder / f"tsp_{nodes}.pt")
    for path in places:
        if path.is_file():
            return path
    if nodes not in RELEASED:
        raise UserError(
            f"nodes is {nodes}; expected one of {', '.join(map(str, RELEASED))}, for which models have been "
            "released. Give another in the same format with --file."
        )
    raise UserError(
        f"there is neither {places[0]} nor {places[1]}; expected the model that was trained on {nodes} "
        f"nodes. Get pretrained/tsp_{nodes}/epoch-99.pt from {HOME}, and name it with --file, or the "
        f"folder above attention-learn-to-route with the environment variable {VARIABLE}."
    )


def read_pretrained(path: Path) -> AttentionModel:
    """Read a model in the published format, and return it in evaluation mode."""
    if not path.is_file():
        raise UserError(
            f"there is no file {path}; expected a model in the format of {HOME}. Correct the path."
        )
    damage = (UnpicklingError, EOFError, RuntimeError, ValueError, KeyError, TypeError, OSError)
    with readable(path, f"a model in the format of {HOME}", *damage):
        theirs = _weights(torch.load(path, map_location="cpu", weights_only=True))
        settings = _sizes(theirs)
        model = AttentionModel(settings)
        kept = {name: x for name, x in model.state_dict().items() if name.endswith("_tracked")}
        model.load_state_dict(_renamed(theirs, settings.layers) | kept)
    return model.eval()


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _weights(content: object) -> dict[str, Tensor]:
    """Return the weights in a file: those of the model, and not of an optimiser beside it."""
    weights = content.get("model") if isinstance(content, Mapping) else None
    if not isinstance(weights, Mapping) or not all(map(torch.is_tensor, weights.values())):
        raise ValueError("it has no entry 'model' with tensors")
    broken = [name for name, x in weights.items() if not x.isfinite().all()]
    if broken:
        raise ValueError(f"{broken[0]} is not finite")
    return dict(weights)


def _sizes(theirs: Mapping[str, Tensor]) -> ModelSettings:
    """Return the sizes of a model; logits are clipped at 10 in all published ones."""
    heads, width, _ = theirs["embedder.layers.0.0.module.W_query"].shape
    hidden = len(theirs["embedder.layers.0.2.module.0.weight"])
    layers = len([name for name in theirs if name.endswith("W_query")])
    return ModelSettings(width=width, heads=heads, layers=layers, hidden=hidden)


def _renamed(theirs: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return the weights of our model, from all of theirs."""
    left, ours = dict(theirs), {}
    names = dict(SAME)
    for i in range(layers):
        there, here = f"embedder.layers.{i}", f"encoder.layers.{i}"
        names |= {f"{there}.{a}": f"{here}.{b}" for a, b in SAME_IN_LAYER.items()}
        inwards = [left.pop(f"{there}.0.module.W_{name}") for name in ("query", "key", "val")]
        ours[f"{here}.project_in.weight"] = torch.cat([w.mT.flatten(0, 1) for w in inwards])
        ours[f"{here}.project_out.weight"] = left.pop(f"{there}.0.module.W_out").flatten(0, 1).T
    first, last = left.pop("project_step_context.weight").chunk(2, -1)
    ours |= {"decoder.project_first.weight": first, "decoder.project_last.weight": last}
    ours["decoder.placeholder"] = left.pop("W_placeholder").unflatten(0, (2, -1))
    for name, tensor in left.items():
        part, _, kind = name.rpartition(".")
        ours[f"{names[part]}.{kind}"] = tensor
    return ours
