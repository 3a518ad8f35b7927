"""Integrations with other packages; each imports its optional dependency itself."""
