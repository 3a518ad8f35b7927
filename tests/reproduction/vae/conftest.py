from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.vae.command import vae
from reproduction.vae.settings import VAESettings


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the digits, with REINFORCE as the paper's variance table has it."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    return vae(VAESettings(dims=2, epochs=2, keep_every=1, cpu=True, estimator="rloo", out=path))
