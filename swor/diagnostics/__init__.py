"""Diagnostics: the exact and the measured bias and variance of estimators."""
