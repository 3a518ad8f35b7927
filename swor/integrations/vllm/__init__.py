"""Distinct completions of prompts from a vLLM engine."""

from swor.integrations.vllm.completions import DistinctCompletions, sample_completions
from swor.integrations.vllm.engine import ENGINE, Server

__all__ = ["ENGINE", "DistinctCompletions", "Server", "sample_completions"]
