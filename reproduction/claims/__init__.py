"""The claims of the paper and of this project, each with one criterion, and verdicts on tables of results."""
