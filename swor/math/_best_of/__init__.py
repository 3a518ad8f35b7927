"""The best of several draws, given a sample without replacement."""
