"""A pytest plugin: UnorderedSetTrainer in the place of RLOOTrainer."""

import trl

from swor.integrations.trl import UnorderedSetTrainer

trl.RLOOTrainer = UnorderedSetTrainer
