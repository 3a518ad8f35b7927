"""Distinct completions of Hugging Face language models, and their log-probabilities."""

from swor.integrations.transformers.catalogue import Catalogue
from swor.integrations.transformers.completions import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)
from swor.integrations.transformers.generate import distinct_generate

__all__ = [
    "Catalogue",
    "ancestral_completions",
    "beam_completions",
    "completion_log_probs",
    "distinct_generate",
    "sample_completions",
]
