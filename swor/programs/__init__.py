"""Programs that make random choices, as distributions over their runs."""
