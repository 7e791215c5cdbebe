"""Metrics of labelled tasks, equal to those of the official scripts, digit by digit."""
