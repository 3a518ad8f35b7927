"""The decisions of tables of results on claims: each returns the number, in words, and the decision."""
