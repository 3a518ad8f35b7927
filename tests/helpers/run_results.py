"""The results that tests compare of two runs: the logged metrics, and the weights of the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn


def logged(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without the wall-clock time."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def same_weights(model: nn.Module, other: nn.Module) -> bool:
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
