"""Runs that train for the best of m, beside runs that train for the mean."""
