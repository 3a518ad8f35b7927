"""Rules: pure functions from a :class:`swor.Sample` to :class:`swor.Weights`."""
