"""Estimators of E[f] and its gradient, called with a function, a distribution and k."""
