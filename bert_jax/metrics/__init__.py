"""Metrics of labelled tasks, equal to the official scripts to the last digit."""
