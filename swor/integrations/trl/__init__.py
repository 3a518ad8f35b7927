"""A trainer for TRL: distinct completions of every prompt, weighted without bias."""

from swor.integrations.trl._compatibility import check_methods

check_methods()  # before anything is overridden

from swor.integrations.trl.config import UnorderedSetConfig  # noqa: E402
from swor.integrations.trl.trainer import UnorderedSetTrainer  # noqa: E402

__all__ = ["UnorderedSetConfig", "UnorderedSetTrainer"]
