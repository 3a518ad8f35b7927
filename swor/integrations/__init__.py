"""Integrations with other packages. Each module imports its own optional dependency."""
