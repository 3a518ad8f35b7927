"""The paper's experiments; they need the extra ``swor[experiments]``."""
