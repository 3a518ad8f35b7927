"""Estimators of E[f] and its gradient: rules for samples, and callables that choose where f is evaluated."""
