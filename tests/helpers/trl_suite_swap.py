"""A pytest plugin: UnorderedSetTrainer in the place of RLOOTrainer, from the start of the session on."""

import trl

from swor.integrations.trl import UnorderedSetTrainer


def pytest_configure() -> None:
    """Replace the trainer; importing this module alone changes nothing."""
    trl.RLOOTrainer = UnorderedSetTrainer
