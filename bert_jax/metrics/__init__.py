"""Metrics of labelled tasks, equal to those of the official scripts; NumPy and SciPy only."""
