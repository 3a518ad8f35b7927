"""Samplers: everything that draws a :class:`swor.Sample`."""
