"""The reproduction of Kool et al. (2020): experiments, figures, tables and the report."""
