"""What the pages of results say in numbers, computed from the committed tables of the runs."""
