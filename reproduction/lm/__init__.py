"""A small language model that learns to sort digits from a reward."""
