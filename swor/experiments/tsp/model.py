"""The Attention Model (Kool, van Hoof and Welling 2019), and the file it is kept in."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder
from swor.experiments.tsp.decoder import Decoder
from swor.experiments.tsp.encoder import Encoder
from swor.experiments.tsp.policy import TourPolicy
from swor.experiments.tsp.problem import check_instances
from swor.experiments.tsp.settings import ModelSettings

FORMAT = "swor-tsp-attention-model"


class AttentionModel(nn.Module):
    """From instances to a distribution over their tours, a :class:`swor.SequenceModel`.

    The encoder runs once per instance, whatever the number of samples.

    Args:
        settings: the sizes.

    >>> import swor, torch
    >>> model = AttentionModel(ModelSettings(width=16, heads=2, layers=1, hidden=8))
    >>> policy = model(torch.rand(3, 5, 2))  # 3 instances of 5 nodes
    >>> swor.stochastic_beam_search(policy, 4).value.shape
    torch.Size([3, 4, 5])
    """

    def __init__(self, settings: ModelSettings | None = None) -> None:
        super().__init__()
        self.settings = ModelSettings() if settings is None else settings
        self.encoder = Encoder(self.settings)
        self.decoder = Decoder(self.settings)

    def forward(self, instances: Tensor) -> TourPolicy:
        """From instances, (batch, nodes, 2), to the policy."""
        check_instances(instances)
        policy: TourPolicy = self.decoder(self.encoder(instances))
        return policy


def save_model(model: AttentionModel, path: Path) -> None:
    """Write the parameters as safetensors, with the settings; whole or not at all."""
    metadata = {"format": FORMAT, "settings": json.dumps(asdict(model.settings))}
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    with RunFolder(path.parent).replacing(path.name) as draft:
        save_file(state, draft, metadata)


def load_model(path: Path) -> AttentionModel:
    """Read a model written by :func:`save_model`, in evaluation mode.

    Args:
        path: such as the ``model.safetensors`` of a run of ``swor tsp``.
    """
    metadata, state = _read(path)
    if metadata.get("format") != FORMAT:
        raise UserError(
            f"{path} holds another kind of model; expected the model.safetensors of a run of "
            "`swor tsp`."
        )
    try:
        model = AttentionModel(ModelSettings(**json.loads(metadata["settings"])))
        model.load_state_dict(state)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"the parameters in {path} are not those of its settings {metadata.get('settings')}; "
            f"expected a file as `swor tsp` wrote it. {error}"
        ) from error
    return model.eval()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        raise UserError(f"there is no file {path}; expected the model.safetensors of a run.")
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, state
    except SafetensorError as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); expected the model.safetensors of a "
            "run of `swor tsp`."
        ) from error
