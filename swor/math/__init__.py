"""Probabilities of samples without replacement, in log space."""
