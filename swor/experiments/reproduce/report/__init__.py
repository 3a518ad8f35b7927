"""The report of a reproduction: one page that needs nothing else."""
