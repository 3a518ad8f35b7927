"""Estimators: rules that turn a sample into weights, and callables that choose where f is evaluated."""
