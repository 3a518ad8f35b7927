"""Diagnostics: exact and measured bias and variance of estimators."""
