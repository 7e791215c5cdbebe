"""Readers of labelled files and of inputs to predict, one module per kind of example."""
