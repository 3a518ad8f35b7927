"""The report of a reproduction: one page that works without a network or other files."""
