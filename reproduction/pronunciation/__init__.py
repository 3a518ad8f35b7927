"""From spelling to phonemes: a network that others trained, measured and fine-tuned by exact match."""
