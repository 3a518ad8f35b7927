"""Samplers: functions that draw a :class:`swor.Sample` from a distribution or from a sequence model."""
